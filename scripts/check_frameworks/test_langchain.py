"""Tests of the vector store of LangChain: LangChain's own suite, and behaviour that it does not cover."""

import asyncio
import datetime
import uuid

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.indexing import InMemoryRecordManager, index
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
    """LangChain's tests of vector stores, synchronous and asynchronous, in memory and in a folder."""

    @pytest.fixture(params=["memory", "folder"])
    def vectorstore(self, request, tmp_path):
        path = tmp_path / "own" if request.param == "folder" else f"memory://own/{uuid.uuid4()}"
        store = BathyalVectorStore.create(path, self.get_embeddings())
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


def test_filters_have_the_syntax_of_collections(store):
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


def test_keys_without_columns_are_stored_but_cannot_be_filtered(store):
    assert store.get_by_ids(["a"])[0].metadata == METADATAS[0]
    with pytest.raises(ValueError, match=r'no column "score".*columns=\{"score": "string"\}'):
        store.similarity_search("two", filter="score > 0.1")
    with pytest.raises(ValueError, match="no column"):
        store.delete(filter={"score": 1})
    with pytest.raises(ValueError, match="no column"):
        asyncio.run(store.asimilarity_search_with_score("two", filter="score > 0.1"))


def test_refused_metadata_changes_no_rows(store):
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


def test_scores_are_ordered_by_distance(tmp_path):
    for metric in ("cosine", "l2", "ip"):
        store = BathyalVectorStore.from_texts(TEXTS, EMBEDDING, path=tmp_path / metric, metric=metric)
        distances = [score for _, score in store.similarity_search_with_score("one", k=3)]
        assert distances == sorted(distances)
        relevant = [score for _, score in store._similarity_search_with_relevance_scores("one", k=3)]
        assert relevant == sorted(relevant, reverse=True)
        store.collection.close()


def test_marginal_relevance_returns_different_documents(store):
    # The same text a second time is not relevant to the result.
    store.add_texts(["one"], ids=["d"])
    documents = store.max_marginal_relevance_search("one", k=2, fetch_k=4, lambda_mult=0.1)
    assert len(documents) == 2 and {document.page_content for document in documents} != {"one"}
    again = asyncio.run(store.amax_marginal_relevance_search("one", k=2, fetch_k=4, lambda_mult=0.1))
    assert again == documents
    assert store.max_marginal_relevance_search("one", filter="year > 3000") == []


def test_rows_are_deleted_by_ids_by_filter_or_all(store):
    store.delete([])
    assert len(store.collection) == 3
    store.delete(["a", "none"])
    store.delete(filter="year = 2021")
    assert found(store.similarity_search("two", k=3)) == {"c"}
    asyncio.run(store.adelete(delete_all=True))
    assert len(store.collection) == 0


REFUSED_DELETIONS = [
    ({}, TypeError, "takes ids, filter= or delete_all=True"),
    ({"ids": None, "filter": None}, TypeError, "takes ids, filter= or delete_all=True"),
    ({"delete_all": False}, TypeError, "takes ids, filter= or delete_all=True"),
    ({"delete_all": "no"}, TypeError, "delete_all is 'no'"),
    ({"filters": {"year": 2019}}, TypeError, "no argument 'filters'; did you mean 'filter'"),
    ({"where": "year = 2019"}, TypeError, "no argument 'where'; did you mean 'filter'"),
    ({"fliter": "year = 2019"}, TypeError, "no argument 'fliter'; did you mean 'filter'"),
    (
        {"ids": ["a"], "namespace": "x"},
        TypeError,
        "no argument 'namespace'; it takes: ids, filter, delete_all",
    ),
    ({"filter": {}}, ValueError, "empty filter"),
    ({"filter": {"$or": [{"year": 2019}, {}]}}, ValueError, "empty filter"),
    ({"filter": ""}, ValueError, "filter is empty"),
    ({"ids": "abc"}, TypeError, r"ids is the text 'abc'; expected a list of ids: \['abc'\]"),
    ({"ids": ["a"], "filter": "year = 2019"}, TypeError, "one of them"),
    ({"ids": ["a"], "delete_all": True}, TypeError, "one of them"),
    ({"filter": "year = 2019", "delete_all": True}, TypeError, "one of them"),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSED_DELETIONS)
def test_refused_deletions_delete_nothing(store, given, error, message):
    with pytest.raises(error, match=message):
        store.delete(**given)
    with pytest.raises(error, match=message):
        asyncio.run(store.adelete(**given))
    assert len(store.collection) == 3


def test_unknown_arguments_are_refused(store):
    vector = EMBEDDING.embed_query("two")
    searches = [
        ("similarity_search", "two"),
        ("similarity_search_by_vector", vector),
        ("similarity_search_with_score", "two"),
        ("similarity_search_with_relevance_scores", "two"),
        ("max_marginal_relevance_search", "two"),
        ("max_marginal_relevance_search_by_vector", vector),
    ]
    for name, query in searches:
        for call in (
            getattr(store, name),
            lambda *a, n=name, **k: asyncio.run(getattr(store, f"a{n}")(*a, **k)),
        ):
            assert call(query, k=1, filter="year = 2021", recall=0.9, threads=1, timeout=60.0)
            for given in ("filters", "where", "columns", "vectors", "fetchk"):
                with pytest.raises(TypeError, match=f"no argument '{given}'"):
                    call(query, **{given: "year = 2021"})
    for call in (store.add_texts, lambda *a, **k: asyncio.run(store.aadd_texts(*a, **k))):
        with pytest.raises(TypeError, match=r"no argument 'metadata'; did you mean 'metadatas'\?"):
            call(["new"], metadata=[{"year": 1}])
        with pytest.raises(TypeError, match="texts is the text 'new'"):
            call("new")
        with pytest.raises(TypeError, match="ids is the text 'n'"):
            call(["new"], ids="n")
        with pytest.raises(TypeError, match="a dictionary for each text"):
            call(["new"], {"year": 1})
    with pytest.raises(TypeError, match="ids is the text 'abc'"):
        store.get_by_ids("abc")
    for given in (
        {"filter": "year = 2021"},
        {"search_kwarg": {"k": 1}},
        {"search_kwargs": {"filters": "year = 1"}},
    ):
        with pytest.raises(TypeError, match=r"no argument '(filter|search_kwarg|filters)'"):
            store.as_retriever(**given)
    with pytest.raises(TypeError, match="no argument 'fetch_k'"):
        store.as_retriever(search_kwargs={"fetch_k": 9}).invoke("two")
    assert len(store.collection) == 3


def test_texts_are_embedded_in_batches_and_written_at_once(tmp_path):
    sizes = []

    class Counting(DeterministicFakeEmbedding):
        def embed_documents(self, texts):
            sizes.append(len(texts))
            return super().embed_documents(texts)

    store = BathyalVectorStore.create(tmp_path / "batches", Counting(size=16))
    store.add_documents([Document(text, id=text) for text in "abcde"], batch_size=2)
    assert sizes == [2, 2, 1] and store.collection.inspect()["sequence"] == 1
    with pytest.raises(ValueError, match="batch_size is 0"):
        store.add_texts(["new"], batch_size=0)
    store.collection.close()


def test_documents_are_indexed_by_langchain(tmp_path):
    store = BathyalVectorStore.create(tmp_path / "indexed", EMBEDDING)
    records = InMemoryRecordManager("records")
    documents = [Document(text, metadata={"source": "a"}) for text in "abcde"]
    for given, (added, deleted) in [(documents, (5, 0)), (documents[:2], (0, 3)), ([], (0, 2))]:
        result = index(given, records, store, cleanup="full", source_id_key="source", key_encoder="sha256")
        assert (result["num_added"], result["num_deleted"]) == (added, deleted)
        assert len(store.collection) == len(given)
    store.collection.close()


def test_an_existing_store_must_match_the_arguments(tmp_path):
    path = tmp_path / "kept"
    BathyalVectorStore.create(path, EMBEDDING, columns={"lang": "string"}).collection.close()
    for given, message in [
        (
            {"columns": {"year": "int64"}},
            "columns: 'year' is 'int64', and the existing collection has none",
        ),
        ({"columns": {"lang": "int64"}}, "columns: 'lang' is 'int64', .* has 'string'"),
        ({"metric": "l2"}, "metric is 'l2', .* has 'cosine'"),
        ({"dim": 8}, "dim is 8, .* has 16"),
    ]:
        with pytest.raises(ValueError, match=message):
            BathyalVectorStore.from_texts(["one"], EMBEDDING, path=path, **given)
    for make in (BathyalVectorStore.create, BathyalVectorStore.open):
        with pytest.raises(TypeError, match="no argument 'column'"):
            make(tmp_path / "new", EMBEDDING, column={"year": "int64"})
    with pytest.raises(TypeError, match="no argument 'colums'; did you mean 'columns'"):
        BathyalVectorStore.from_texts(["one"], EMBEDDING, colums={"year": "int64"})
    store = BathyalVectorStore.from_texts(["one"], EMBEDDING, path=path, columns={"lang": "string"}, dim=16)
    assert len(store.collection) == 1
    store.collection.close()


def test_a_store_can_be_reopened(tmp_path):
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
    with pytest.raises(ValueError, match="'text' is reserved"):
        BathyalVectorStore.create(tmp_path / "third", EMBEDDING, columns={"text": "string"})
