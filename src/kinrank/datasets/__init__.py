"""Judged queries: generated ones whose best ranking is known, samples of real data, and public collections."""

from kinrank.datasets.click_log import simulate_clicks
from kinrank.datasets.download import get_data_home
from kinrank.datasets.letor import fetch_letor
from kinrank.datasets.movies import fetch_msrd, load_movie_scores, load_movies
from kinrank.datasets.queries import make_intents, make_two_camps

__all__ = [
    "fetch_letor",
    "fetch_msrd",
    "get_data_home",
    "load_movie_scores",
    "load_movies",
    "make_intents",
    "make_two_camps",
    "simulate_clicks",
]
