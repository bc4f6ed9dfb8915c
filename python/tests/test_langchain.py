"""Deletes of the vector store of LangChain. `make check-frameworks` tests the rest with LangChain's suite."""

import asyncio

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding

from bathyal.langchain import BathyalVectorStore

REFUSED = [
    ({}, "one of them"),
    ({"filters": "year = 2019"}, "no argument 'filters'; did you mean 'filter'"),
    ({"where": "year = 2019"}, "no argument 'where'; did you mean 'filter'"),
    ({"ids": ["a"], "filters": "year = 2019"}, "no argument 'filters'"),
    ({"filter": {}}, "empty filter"),
    ({"filter": ""}, "filter is empty"),
    ({"ids": "abc"}, "ids is the text 'abc'"),
    ({"ids": ["a"], "delete_all": True}, "one of them"),
]


@pytest.fixture
def store(tmp_path):
    store = BathyalVectorStore.create(
        tmp_path / "docs", DeterministicFakeEmbedding(size=16), columns={"year": "int64"}
    )
    store.add_texts(["one", "two"], [{"year": 2019}, {"year": 2021}], ids=["a", "b"])
    yield store
    store.collection.close()


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_an_invalid_delete_deletes_nothing(store, given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        store.delete(**given)
    with pytest.raises((TypeError, ValueError), match=message):
        asyncio.run(store.adelete(**given))
    assert len(store.collection) == 2


def test_delete_all_deletes_all(store):
    assert store.delete([]) and len(store.collection) == 2
    assert store.delete(filter="year = 2019") and len(store.collection) == 1
    assert store.delete(delete_all=True) and len(store.collection) == 0
