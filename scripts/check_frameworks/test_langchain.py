"""The vector store of LangChain, by LangChain's own suite, and what that suite does not ask."""

import asyncio
import datetime
import uuid

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_tests.integration_tests.vectorstores import VectorStoreIntegrationTests

import bathyal
from bathyal.langchain import BathyalVectorStore

EMBEDDING = DeterministicFakeEmbedding(size=16)
COLUMNS = {"year": "int64", "lang": "string", "tags": "list<string>"}
TEXTS = ["one", "two", "three"]
METADATAS = [
    {"year": 2019, "lang": "de", "by": {"name": "Ada"}},
    {"year": 2021, "tags": ["new", "long"]},
    {"year": 2023, "lang": "en", "tags": [], "score": 0.5},
]

pytestmark = pytest.mark.filterwarnings("ignore::bathyal.SearchWarning")


class TestOwnSuite(VectorStoreIntegrationTests):
    """All tests that LangChain has for vector stores, synchronous and not, in memory and in a folder."""

    @pytest.fixture(params=["memory", "folder"])
    def vectorstore(self, request, tmp_path):
        place = tmp_path / "own" if request.param == "folder" else f"memory://own/{uuid.uuid4()}"
        store = BathyalVectorStore.create(place, self.get_embeddings())
        yield store
        store.collection.close()


@pytest.fixture
def store(tmp_path):
    store = BathyalVectorStore.create(tmp_path / "docs", EMBEDDING, columns=COLUMNS)
    store.add_texts(TEXTS, METADATAS, ids=["a", "b", "c"])
    yield store
    store.collection.close()


def found(documents):
    return {document.id for document in documents}


def test_filters_are_those_of_collections(store):
    for condition, ids in [
        ("year >= 2021", {"b", "c"}),
        ({"year": {"$lt": 2021}}, {"a"}),
        ("lang is null", {"b"}),
        ("contains(tags, 'new')", {"b"}),
        ("id = 'c'", {"c"}),
    ]:
        assert found(store.similarity_search("two", k=3, filter=condition)) == ids
        assert found(asyncio.run(store.asimilarity_search("two", k=3, filter=condition))) == ids
        retriever = store.as_retriever(search_kwargs={"k": 3, "filter": condition})
        assert found(retriever.invoke("two")) == ids


def test_keys_that_are_no_columns_are_kept_and_not_filtered_by(store):
    assert store.get_by_ids(["a"])[0].metadata == METADATAS[0]
    with pytest.raises(ValueError, match=r'no column "score".*columns=\{"score": "string"\}'):
        store.similarity_search("two", filter="score > 0.1")
    with pytest.raises(ValueError, match="no column"):
        store.delete(filter={"score": 1})
    with pytest.raises(ValueError, match="no column"):
        asyncio.run(store.asimilarity_search_with_score("two", filter="score > 0.1"))


def test_what_cannot_be_kept_is_refused_and_loses_nothing(store):
    before = store.get_by_ids(["a", "b", "c"])
    for metadatas, error in [
        ([{"at": datetime.date(2024, 1, 2)}], TypeError),
        ([{"seen": {1}}], TypeError),
        ([{"year": "later"}], ValueError),
        ([{}, {}], ValueError),
    ]:
        with pytest.raises(error):
            store.add_texts(["new"], metadatas, ids=["a"])
        with pytest.raises(error):
            asyncio.run(store.aadd_texts(["new"], metadatas, ids=["a"]))
    with pytest.raises(ValueError, match="2 ids for 1 texts"):
        store.add_texts(["new"], ids=["a", "b"])
    with pytest.raises(bathyal.DuplicateIdError):
        store.add_texts(["new", "newer"], ids=["a", "a"])
    assert store.get_by_ids(["a", "b", "c"]) == before
    assert len(store.collection) == 3


def test_scores_rise_as_documents_come_nearer(tmp_path):
    for metric in ("cosine", "l2", "ip"):
        store = BathyalVectorStore.from_texts(TEXTS, EMBEDDING, path=tmp_path / metric, metric=metric)
        distances = [score for _, score in store.similarity_search_with_score("one", k=3)]
        assert distances == sorted(distances)
        relevant = [score for _, score in store._similarity_search_with_relevance_scores("one", k=3)]
        assert relevant == sorted(relevant, reverse=True)
        store.collection.close()


def test_documents_that_differ_from_each_other(store):
    # Twice the same text: the second one adds nothing.
    store.add_texts(["one"], ids=["d"])
    documents = store.max_marginal_relevance_search("one", k=2, fetch_k=4, lambda_mult=0.1)
    assert len(documents) == 2 and {document.page_content for document in documents} != {"one"}
    again = asyncio.run(store.amax_marginal_relevance_search("one", k=2, fetch_k=4, lambda_mult=0.1))
    assert again == documents
    assert store.max_marginal_relevance_search("one", filter="year > 3000") == []


def test_rows_are_deleted_by_ids_by_a_filter_and_all(store):
    store.delete([])
    assert len(store.collection) == 3
    store.delete(["a", "none"])
    store.delete(filter="year = 2021")
    assert found(store.similarity_search("two", k=3)) == {"c"}
    with pytest.raises(TypeError):
        store.delete(["c"], filter="year = 2021")
    asyncio.run(store.adelete())
    assert len(store.collection) == 0


def test_a_store_is_opened_again(tmp_path):
    path = tmp_path / "kept"
    documents = [Document(id="x", page_content="ein Text", metadata={"lang": "de"}), Document("another")]
    first = BathyalVectorStore.from_documents(documents, EMBEDDING, path=path, columns={"lang": "string"})
    first.collection.close()
    more = BathyalVectorStore.from_texts(["third"], EMBEDDING, ids=["z"], path=path)
    more.collection.close()
    with BathyalVectorStore.open(path, EMBEDDING).collection as collection:
        assert len(collection) == 3 and collection.count("lang = 'de'") == 1


def test_other_collections_are_refused(tmp_path):
    bathyal.Collection.create(tmp_path / "other", dim=16).close()
    with pytest.raises(ValueError, match=r"BathyalVectorStore\.create"):
        BathyalVectorStore.open(tmp_path / "other", EMBEDDING)
    with pytest.raises(ValueError, match="'text' is taken"):
        BathyalVectorStore.create(tmp_path / "third", EMBEDDING, columns={"text": "string"})
