"""Tests of the vector store of LlamaIndex: filters, compared with LlamaIndex's own evaluation, and all else."""

import asyncio
import random
import uuid

import pytest
from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
from llama_index.core.schema import Document, ImageNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

import bathyal
from bathyal.llama_index import BathyalVectorStore

COLUMNS = {"year": "int64", "rank": "string", "weight": "float64", "tags": "list<string>"}
TEXT_MATCHES = (FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE)

pytestmark = pytest.mark.filterwarnings("ignore::bathyal.SearchWarning")


def node(number, choose):
    """Returns a node whose metadata may lack any key."""
    metadata = {
        "year": choose.choice([2019, 2020, 2021, None]),
        "rank": choose.choice(["a", "b", "", None]),
        "weight": choose.choice([0.5, 1.0, 2.0]),
        "tags": choose.choice([[], ["x"], ["x", "y"], ["z"]]),
        "only": {"here": number},
    }
    kept = {name: value for name, value in metadata.items() if choose.random() < 0.8}
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"document {number % 3}")}
    return TextNode(
        id_=f"node {number}",
        text=f"text {number}",
        embedding=[choose.gauss(0, 1) for _ in range(8)],
        metadata=kept,
        relationships=source,
    )


NODES = [node(number, random.Random(number)) for number in range(60)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = BathyalVectorStore.create(tmp_path_factory.mktemp("nodes") / "collection", 8, columns=COLUMNS)
    assert store.add(NODES) == [node.node_id for node in NODES]
    yield store
    store.client.close()


def make_query(**more):
    return VectorStoreQuery(query_embedding=[1.0] + [0.0] * 7, similarity_top_k=len(NODES), **more)


VALUES = {"year": [2018, 2019, 2020, 2021], "rank": ["a", "b", "c"], "weight": [0.5, 1.0, 1.5]}
SCALAR_OPERATORS = ["EQ", "NE", "GT", "GTE", "LT", "LTE"]


def any_filter(choose):
    """Returns a random filter over one key, with any operator that fits the key."""
    key = choose.choice([*VALUES, "tags"])
    if choose.random() < 0.1:
        return MetadataFilter(key=key, value=None, operator=FilterOperator.IS_EMPTY)
    if key == "tags":
        tags = choose.sample(["x", "y", "z", "none"], choose.randint(1, 3))
        name = choose.choice(["CONTAINS", "ANY", "ALL"])
        return MetadataFilter(
            key=key, value=tags[0] if name == "CONTAINS" else tags, operator=FilterOperator[name]
        )
    name = choose.choice([*SCALAR_OPERATORS, "IN", "NIN"])
    values = choose.sample(VALUES[key], choose.randint(1, 3))
    return MetadataFilter(
        key=key, value=values[0] if name in SCALAR_OPERATORS else values, operator=FilterOperator[name]
    )


def test_filters_agree_with_llama_index(store):
    metadata = {node.node_id: node.metadata for node in NODES}
    choose, counts = random.Random(3), set()
    for _ in range(400):
        parts = [any_filter(choose) for _ in range(choose.randint(1, 3))]
        filters = MetadataFilters(filters=parts, condition=choose.choice([*FilterCondition, None]))
        matches = build_metadata_filter_fn(metadata.__getitem__, filters)
        expected = {id for id in metadata if matches(id)}
        assert {node.node_id for node in store.get_nodes(filters=filters)} == expected, filters
        found = store.query(make_query(filters=filters))
        assert set(found.ids) == expected, filters
        counts.add(len(expected))
    assert {0, len(NODES)} < counts and len(counts) > 20


def test_filters_can_be_nested(store):
    inner = MetadataFilters.from_dicts([{"key": "rank", "value": "a"}], condition=FilterCondition.NOT)
    either = MetadataFilters(
        filters=[inner, MetadataFilter(key="year", value=2020)], condition=FilterCondition.OR
    )
    expected = {
        one.node_id for one in NODES if one.metadata.get("rank") != "a" or one.metadata.get("year") == 2020
    }
    assert {node.node_id for node in store.get_nodes(filters=either)} == expected
    nothing = MetadataFilters(filters=[MetadataFilters(filters=[])])
    assert len(store.get_nodes(filters=nothing)) == len(NODES)


def test_unsupported_filters_are_refused_with_a_reason(store):
    undeclared = MetadataFilters.from_dicts([{"key": "only", "value": "here"}])
    for work in (
        lambda: store.query(make_query(filters=undeclared)),
        lambda: asyncio.run(store.aquery(make_query(filters=undeclared))),
        lambda: store.get_nodes(filters=undeclared),
        lambda: store.delete_nodes(filters=undeclared),
    ):
        with pytest.raises(ValueError, match=r'no column "only".*columns=\{"only": "string"\}'):
            work()
    for operator in TEXT_MATCHES:
        match = MetadataFilters(filters=[MetadataFilter(key="rank", value="a", operator=operator)])
        with pytest.raises(ValueError, match="do not search within texts"):
            store.query(make_query(filters=match))
    for mode in set(VectorStoreQueryMode) - {VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR}:
        with pytest.raises(ValueError, match=f"'{mode.value}' is not supported"):
            store.query(make_query(mode=mode))


def test_every_operator_is_supported(store):
    for operator in set(FilterOperator) - set(TEXT_MATCHES):
        lists = operator in (FilterOperator.ANY, FilterOperator.ALL, FilterOperator.CONTAINS)
        many = operator not in (FilterOperator.CONTAINS, *(FilterOperator[name] for name in SCALAR_OPERATORS))
        one = MetadataFilter(key="tags" if lists else "rank", value=["x"] if many else "x", operator=operator)
        store.query(make_query(filters=MetadataFilters(filters=[one])))


def test_nodes_are_returned_unchanged(store):
    found = store.query(make_query())
    assert found.similarities == sorted(found.similarities, reverse=True)
    added = {node.node_id: node for node in NODES}
    for id, returned in zip(found.ids, found.nodes, strict=True):
        assert returned.node_id == id
        assert (returned.text, returned.metadata) == (added[id].text, added[id].metadata)
        assert returned.ref_doc_id == added[id].ref_doc_id
    assert asyncio.run(store.aquery(make_query())).ids == found.ids
    best = found.ids[:1]
    assert store.query(make_query(node_ids=best)).ids == best
    assert store.query(make_query(node_ids=[])).ids == found.ids
    assert store.query(make_query(doc_ids=[])).ids == []
    of_document = store.query(make_query(doc_ids=["document 1"])).nodes
    assert {node.ref_doc_id for node in of_document} == {"document 1"} and len(of_document) == 20


def test_an_image_node_is_returned_as_an_image_node():
    store = BathyalVectorStore.create(f"memory://images/{uuid.uuid4()}", 2, metric="l2")
    store.add([ImageNode(id_="i", text="a cat", image_url="http://localhost/cat.png", embedding=[0.0, 1.0])])
    (back,) = store.get_nodes()
    assert isinstance(back, ImageNode) and back.text == "a cat" and back.image_url.endswith("cat.png")
    assert store.query(VectorStoreQuery(query_embedding=[0.0, 1.0])).similarities == [1.0]


def test_marginal_relevance_returns_different_nodes():
    for metric in ("cosine", "ip"):
        store = BathyalVectorStore.create(f"memory://differ/{uuid.uuid4()}", 2, metric=metric)
        asyncio.run(
            store.async_add(
                [
                    TextNode(id_="a", text="one", embedding=[1.0, 0.0]),
                    TextNode(id_="b", text="one", embedding=[1.0, 0.01]),
                    TextNode(id_="c", text="two", embedding=[0.5, 0.9]),
                ]
            )
        )
        query = VectorStoreQuery(
            query_embedding=[1.0, 0.0], similarity_top_k=2, mode=VectorStoreQueryMode.MMR, mmr_threshold=0.1
        )
        assert store.query(query).ids == ["a", "c"]
        assert [node.text for node in asyncio.run(store.aquery(query)).nodes] == ["one", "two"]
        assert store.query(query, mmr_threshold=1.0).ids == ["a", "b"]
        store.clear()
        assert store.query(query).ids == []


def test_nodes_are_replaced_and_deleted(tmp_path):
    store = BathyalVectorStore.create(tmp_path / "changing", 8, columns=COLUMNS)
    store.add([])
    store.add(NODES)
    store.add(NODES[:2])
    with pytest.raises(ValueError, match="embedding"):
        store.add([NODES[3].model_copy(update={"embedding": None})])
    assert len(store.client) == len(NODES)
    store.delete("document 0")
    assert len(store.client) == 40
    store.delete_nodes(["node 1", "node 2"])
    years = MetadataFilters.from_dicts([{"key": "year", "value": 2020}])
    asyncio.run(store.adelete_nodes(filters=years))
    left = {node.node_id for node in store.get_nodes()}
    expected = [n for n in NODES if n.ref_doc_id != "document 0" and n.metadata.get("year") != 2020]
    assert left == {node.node_id for node in expected} - {"node 1", "node 2"}
    store.client.close()
    again = BathyalVectorStore.open(tmp_path / "changing")
    assert {node.node_id for node in again.get_nodes()} == left
    again.clear()
    assert again.get_nodes() == []
    again.client.close()


EMPTY = MetadataFilters(filters=[])
YEAR = MetadataFilters.from_dicts([{"key": "year", "value": 2020}])
REFUSED_DELETIONS = [
    ({}, TypeError, r"takes node_ids, filters or both; clear\(\)"),
    ({"filter": YEAR}, TypeError, "no argument 'filter'; did you mean 'filters'"),
    ({"where": YEAR}, TypeError, "no argument 'where'; did you mean 'filters'"),
    ({"ids": ["node 1"]}, TypeError, "no argument 'ids'; did you mean 'node_ids'"),
    (
        {"node_ids": ["node 1"], "namespace": "x"},
        TypeError,
        "no argument 'namespace'; it takes: node_ids, filters",
    ),
    (
        {"node_ids": "node 1"},
        TypeError,
        r"node_ids is the text 'node 1'; expected a list of ids: \['node 1'\]",
    ),
    ({"filters": EMPTY}, ValueError, "filters are empty"),
    ({"filters": MetadataFilters(filters=[EMPTY])}, ValueError, "filters are empty"),
    (
        {"filters": MetadataFilters(filters=[YEAR, EMPTY], condition=FilterCondition.OR)},
        ValueError,
        "contain some that are",
    ),
]


@pytest.mark.parametrize(("given", "error", "message"), REFUSED_DELETIONS)
def test_refused_deletions_delete_nothing(store, given, error, message):
    with pytest.raises(error, match=message):
        store.delete_nodes(**given)
    with pytest.raises(error, match=message):
        asyncio.run(store.adelete_nodes(**given))
    assert len(store.client) == len(NODES)


def test_unknown_arguments_are_refused(store):
    def awaited(name):
        return lambda *given, **named: asyncio.run(getattr(store, name)(*given, **named))

    for delete in (store.delete, awaited("adelete")):
        with pytest.raises(TypeError, match="no argument 'filters'"):
            delete("document 1", filters=YEAR)
        for id in (None, ["document 1"]):
            with pytest.raises(TypeError, match="expected the id of a document"):
                delete(id)
    for add in (store.add, awaited("async_add")):
        with pytest.raises(TypeError, match="no argument 'batch_size'"):
            add(NODES[:1], batch_size=3)
    for query in (store.query, awaited("aquery")):
        assert query(make_query(), recall=0.9, threads=1, timeout=60.0).ids
        for name in ("filters", "mmr_threshold"):
            with pytest.raises(TypeError, match=f"'default' has no argument '{name}'"):
                query(make_query(), **{name: YEAR})
        with pytest.raises(TypeError, match="no argument 'mmr_treshold'; did you mean 'mmr_threshold'"):
            query(make_query(mode=VectorStoreQueryMode.MMR), mmr_treshold=0.5)
        for name in ("alpha", "sparse_top_k", "hybrid_top_k", "mmr_threshold"):
            with pytest.raises(ValueError, match=f"{name}=1.*leave it out"):
                query(make_query(**{name: 1}))
    with pytest.raises(TypeError, match="node_ids is the text"):
        store.get_nodes("node 1")
    with pytest.raises(TypeError, match="no argument 'treads'; did you mean 'threads'"):
        BathyalVectorStore.create("none", 8, treads=2)
    with pytest.raises(TypeError, match="no argument 'treads'; did you mean 'threads'"):
        BathyalVectorStore.open("none", treads=2)
    assert len(store.client) == len(NODES)


def test_nodes_are_deleted_and_cleared_asynchronously(tmp_path):
    store = BathyalVectorStore.create(tmp_path / "awaited", 8, columns=COLUMNS)
    store.add(NODES)
    asyncio.run(store.adelete("document 0"))
    asyncio.run(store.adelete_nodes(["node 1"], filters=EMPTY))
    asyncio.run(store.adelete_nodes([]))
    assert len(asyncio.run(store.aget_nodes())) == 39
    asyncio.run(store.aclear())
    assert store.get_nodes() == []
    store.persist(str(tmp_path / "elsewhere"))
    store.client.close()
    with pytest.raises(ValueError, match=r"is in memory.*client\.copy"):
        BathyalVectorStore.create("memory://persisted", 8).persist("elsewhere")


def test_an_index_of_llama_index_works_over_the_store(tmp_path):
    store = BathyalVectorStore.create(tmp_path / "index", 4, columns={"lang": "string"})
    context = StorageContext.from_defaults(vector_store=store)
    documents = [Document(text=f"text {lang}", metadata={"lang": lang}) for lang in ("de", "en", "fr")]
    embedding = MockEmbedding(embed_dim=4)
    index = VectorStoreIndex.from_documents(documents, storage_context=context, embed_model=embedding)
    filters = MetadataFilters.from_dicts([{"key": "lang", "value": ["de", "fr"], "operator": "in"}])
    found = index.as_retriever(similarity_top_k=5, filters=filters).retrieve("text")
    assert {one.node.metadata["lang"] for one in found} == {"de", "fr"}
    index.delete_ref_doc(documents[0].doc_id)
    store.client.close()
    again = VectorStoreIndex.from_vector_store(
        BathyalVectorStore.open(tmp_path / "index"), embed_model=embedding
    )
    left = again.as_retriever(similarity_top_k=5).retrieve("text")
    assert {one.node.text for one in left} == {"text en", "text fr"}


def test_other_collections_are_refused(tmp_path):
    bathyal.Collection.create(tmp_path / "other", dim=8).close()
    with pytest.raises(ValueError, match=r"BathyalVectorStore\.create"):
        BathyalVectorStore.open(tmp_path / "other")
    with pytest.raises(ValueError, match="'node' is reserved"):
        BathyalVectorStore.create(tmp_path / "third", 8, columns={"node": "string"})
