"""Fixtures for files whose tests each want a user without rows: `from fresh import app, place, t`."""
import pytest


@pytest.fixture
def t(fresh):
    return fresh


@pytest.fixture
def place(t):
    return t.site()


@pytest.fixture
def app(t, place):
    return t.app(place)
