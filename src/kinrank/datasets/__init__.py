"""Generated data with a known answer: judged queries whose best ranking is known, and clicks on judged queries."""

from kinrank.datasets.click_log import simulate_clicks
from kinrank.datasets.queries import make_intents, make_two_camps

__all__ = ["make_intents", "make_two_camps", "simulate_clicks"]
