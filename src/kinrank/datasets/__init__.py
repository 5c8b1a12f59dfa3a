"""Generated data with a known answer, such as judged queries whose best ranking is known, and samples of real data."""

from kinrank.datasets.bundled import load_movie_scores, load_movies
from kinrank.datasets.click_log import simulate_clicks
from kinrank.datasets.queries import make_intents, make_two_camps

__all__ = ["load_movie_scores", "load_movies", "make_intents", "make_two_camps", "simulate_clicks"]
