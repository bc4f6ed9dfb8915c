"""A vector store of LlamaIndex over a collection. Needs ``llama-index-core``:
``pip install 'bathyal[llama-index]'``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
    from llama_index.core.schema import BaseNode, MetadataMode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict
except ModuleNotFoundError as error:
    message = "bathyal.llama_index needs llama-index-core: pip install 'bathyal[llama-index]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from bathyal import awaiting
from bathyal.arguments import Metric, Path
from bathyal.collection import Collection
from bathyal.documents import listed, refused_with_advice, typed
from bathyal.found_rows import FoundRows, Metadata
from bathyal.keywords import refuse_unknown, taken

TEXT, NODE, KIND, DOCUMENT = "text", "node", "node_type", "ref_doc_id"
KEPT = {TEXT: "string", NODE: "string", KIND: "string", DOCUMENT: "string"}
"""The columns of a node: its text, all else of it as JSON, its class, and the document that it is of."""

COMPARISONS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.CONTAINS: "$contains",
    FilterOperator.ANY: "$containsAny",
    FilterOperator.ALL: "$containsAll",
}
NEGATIONS = {FilterOperator.NE: "$ne", FilterOperator.NIN: "$nin"}
"""What rows without a value match, too, in LlamaIndex."""

MMR_PREFETCH = 4
"""Neighbours that maximal marginal relevance chooses from, for each that is wanted: as other stores have it."""

OPENING = taken(Collection.open, "path")
CREATING = taken(Collection.create, "path", "dim", "metric", "columns", "vectors", "id")
"""The options that are passed on to collections. What else a collection is told, the store tells it."""
SEARCHING = ["recall", "search_list", "threads", "timeout"]
"""The options of every query."""
DIVERSE = ["mmr_threshold", "mmr_prefetch_factor"]
"""Those of the mode ``mmr``."""
HYBRID = ("alpha", "sparse_top_k", "hybrid_top_k", "embedding_field", "output_fields")
"""What a query may hold that no mode of a collection looks at."""


class BathyalVectorStore(BasePydanticVectorStore):
    """Nodes of LlamaIndex in a :class:`Collection`.

    The text of a node is in the column ``text``, and all else of it in the column ``node``, as JSON. Keys of the
    metadata that are columns of the collection, too, can be filtered by; declare them when the collection is made.
    All operators of ``MetadataFilters`` work but ``TEXT_MATCH``: collections do not search within texts.
    Similarities: cosine, the inner product, or ``1 / (1 + distance)`` under l2.

    Args:
        collection: an open collection, made by :meth:`create`. It stays the caller's to close.
        recall: share of the true nearest, of those that match, that a query should find.

    >>> from llama_index.core.schema import TextNode
    >>> from llama_index.core.vector_stores.types import MetadataFilters, VectorStoreQuery
    >>> store = BathyalVectorStore.create("nodes.collection", dim=2, columns={"year": "int64"})
    >>> store.add([
    ...     TextNode(id_="a", text="one", embedding=[1.0, 0.0], metadata={"year": 2019, "by": "Ada"}),
    ...     TextNode(id_="b", text="two", embedding=[0.0, 1.0], metadata={"year": 2024}),
    ... ])
    ['a', 'b']
    >>> before = MetadataFilters.from_dicts([{"key": "year", "value": 2020, "operator": "<"}])
    >>> found = store.query(VectorStoreQuery(query_embedding=[0.0, 1.0], filters=before))
    >>> found.ids, found.nodes[0].metadata
    (['a'], {'year': 2019, 'by': 'Ada'})
    >>> store.client.close()
    """

    stores_text: bool = True
    flat_metadata: bool = False
    _collection: Collection = PrivateAttr()
    _recall: float = PrivateAttr()
    _metric: str = PrivateAttr()
    _typed: dict[str, str] = PrivateAttr()

    def __init__(self, collection: Collection, *, recall: float = 0.95) -> None:
        schema = collection.schema
        kinds = {column["name"]: column["type"] for column in schema["columns"]}
        missing = [name for name, kind in KEPT.items() if kinds.get(name) != kind]
        if schema["id"] != "string" or len(schema["vectors"]) != 1 or missing:
            raise ValueError(
                f"{collection.path}: a vector store of LlamaIndex wants ids that are strings, one field of "
                f"vectors, and the columns {', '.join(KEPT)} of type string; make one with "
                "BathyalVectorStore.create"
            )
        super().__init__(stores_text=True)
        self._collection = collection
        self._recall = recall
        self._metric = schema["vectors"][0]["metric"]
        self._typed = {name: kind for name, kind in kinds.items() if name not in KEPT}

    @classmethod
    def class_name(cls) -> str:
        """The name of the class, by which LlamaIndex knows it."""
        return "BathyalVectorStore"

    @classmethod
    def create(
        cls,
        path: Path,
        dim: int,
        *,
        columns: dict[str, str] | None = None,
        metric: Metric = "cosine",
        recall: float = 0.95,
        **options: Any,
    ) -> BathyalVectorStore:
        """Creates a collection for nodes at ``path``.

        Args:
            dim: components of the embeddings.
            columns: keys of the metadata that can be filtered by, and their types, as :meth:`Collection.create`
                takes them.
            options: those of :meth:`Collection.create`.

        Raises:
            FileExistsError: something is at ``path``.
            TypeError: an option that a collection does not have.
            ValueError: a schema that no collection can have.
        """
        refuse_unknown("create()", options, [*taken(cls.create, "path", "dim"), *CREATING])
        kept = KEPT.keys() & (columns or {}).keys()
        if kept:
            raise ValueError(
                f"columns: {min(kept)!r} is taken: it is where the {min(kept)} of a node is kept"
            )
        all_columns = {**KEPT, **(columns or {})}
        collection = Collection.create(path, dim, metric, columns=all_columns, **options)
        return cls(collection, recall=recall)

    @classmethod
    def open(cls, path: Path, *, recall: float = 0.95, **options: Any) -> BathyalVectorStore:
        """Opens the collection at ``path``; ``options`` are those of :meth:`Collection.open`."""
        refuse_unknown("open()", options, ["recall", *OPENING])
        return cls(Collection.open(path, **options), recall=recall)

    @property
    def client(self) -> Collection:
        """The collection."""
        return self._collection

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Adds nodes with embeddings, or puts them in the place of those with their ids: all of them, or none.

        Raises:
            TypeError: an argument beside the nodes.
            ValueError: a node without an embedding; a value that does not suit its column.
        """
        refuse_unknown("add()", kwargs, ["nodes"])
        if nodes:
            self._collection.upsert(*self._rows(nodes))
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """:meth:`add`, awaited."""
        refuse_unknown("async_add()", kwargs, ["nodes"])
        if nodes:
            await self._collection.upsert_async(*self._rows(nodes))
        return [node.node_id for node in nodes]

    def _rows(self, nodes: Sequence[BaseNode]) -> tuple[list[str], list[list[float]], list[dict[str, Any]]]:
        """Ids, vectors and columns of nodes."""
        ids = [node.node_id for node in nodes]
        return ids, [node.get_embedding() for node in nodes], [self._row(node) for node in nodes]

    def _row(self, node: BaseNode) -> dict[str, Any]:
        kept = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
        # Of lists, LlamaIndex takes empty ones and missing ones for the same; so do columns, then.
        values = {name: None if value == [] else value for name, value in node.metadata.items()}
        return {
            TEXT: node.get_content(metadata_mode=MetadataMode.NONE),
            NODE: kept["_node_content"],
            KIND: kept["_node_type"],
            DOCUMENT: node.ref_doc_id,
            **typed(values, self._typed),
        }

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Deletes the nodes of a document.

        Raises:
            TypeError: an id that is not text, such as None; an argument beside it.
        """
        refuse_unknown("delete()", delete_kwargs, ["ref_doc_id"])
        if not isinstance(ref_doc_id, str):
            raise TypeError(
                f"ref_doc_id is {ref_doc_id!r:.100}; expected the id of a document, which is text"
            )
        self._collection.delete(filter={DOCUMENT: ref_doc_id})

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """:meth:`delete`, awaited."""
        await awaiting.in_thread(lambda: self.delete(ref_doc_id, **delete_kwargs))

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Deletes the nodes with these ids, those that match ``filters``, or of the former those that match.
        :meth:`clear` deletes all nodes.

        Raises:
            TypeError: neither ``node_ids`` nor ``filters``; an argument that is not named here.
            ValueError: filters that are empty, which would match all nodes, or over keys that are no columns.
        """
        refuse_unknown("delete_nodes()", delete_kwargs, ["node_ids", "filters"])
        if node_ids is None and filters is None:
            raise TypeError("delete_nodes() takes node_ids, filters or both; clear() deletes all nodes")
        if node_ids is None and _is_empty(filters):
            raise ValueError("filters are empty, or contain some that are; clear() deletes all nodes")
        with refused_with_advice():
            self._collection.delete(filter=_all_of(_ids(node_ids), condition(filters, self._typed)))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """:meth:`delete_nodes`, awaited."""
        await awaiting.in_thread(lambda: self.delete_nodes(node_ids, filters, **delete_kwargs))

    def clear(self) -> None:
        """Deletes all nodes."""
        self._collection.delete(filter="true")

    async def aclear(self) -> None:
        """:meth:`clear`, awaited."""
        await awaiting.in_thread(self.clear)

    def persist(self, persist_path: str, fs: Any = None) -> None:
        """Does nothing where the collection is in a folder or a bucket: nodes are there once they are added, and
        not at ``persist_path``.

        Raises:
            ValueError: the collection is in the memory of this process, and ends with it.
        """
        if self._collection.path.startswith("memory://"):
            raise ValueError(
                f"{self._collection.path} is in memory, and persist() cannot keep it; copy it to a folder with "
                "client.copy(path), or create the store in one"
            )

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """The nodes with these ids that match ``filters``, in the order of their ids; all, where neither is
        given."""
        with refused_with_advice():
            told = _all_of(_ids(node_ids), condition(filters, self._typed))
            batches = self._collection.batches(filter=told, columns=[TEXT, NODE, KIND])
            return [node for batch in batches for node in _nodes(batch.metadata)]

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """:meth:`get_nodes`, awaited."""
        return await awaiting.in_thread(lambda: self.get_nodes(node_ids, filters))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """The nodes nearest to an embedding, or such that differ from each other (``MMR``), of those that match.

        ``kwargs`` are ``recall``, ``search_list``, ``threads`` and ``timeout``, as :meth:`Collection.search` takes
        them, and in the mode ``MMR`` ``mmr_threshold`` and ``mmr_prefetch_factor``.

        Raises:
            TypeError: an argument that the mode does not have.
            ValueError: another mode; filters over keys that are no columns; ``TEXT_MATCH``; what only a hybrid
                query has, such as ``alpha``.
        """
        vector, options = self._asked(query, kwargs)
        with refused_with_advice():
            found = self._collection.search(vector, **options)
        return self._result(query, found, kwargs)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """:meth:`query`, awaited."""
        vector, options = self._asked(query, kwargs)
        with refused_with_advice():
            found = await self._collection.search_async(vector, **options)
        return self._result(query, found, kwargs)

    def _asked(self, query: VectorStoreQuery, kwargs: dict[str, Any]) -> tuple[list[float], dict[str, Any]]:
        """What the collection is asked."""
        if query.mode not in (VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR):
            raise ValueError(
                f"query mode {query.mode.value!r} is not supported; a collection is asked by 'default' or 'mmr'"
            )
        diverse = query.mode == VectorStoreQueryMode.MMR
        accepted = [*SEARCHING, *(DIVERSE if diverse else [])]
        refuse_unknown(f"a query in the mode {query.mode.value!r}", kwargs, accepted)
        for name in HYBRID if diverse else (*HYBRID, "mmr_threshold"):
            if getattr(query, name) is not None:
                raise ValueError(
                    f"the query has {name}={getattr(query, name)!r}, which a collection that is asked in the mode "
                    f"{query.mode.value!r} does not look at; leave it out"
                )
        if query.query_embedding is None:
            raise ValueError("the query has no embedding; a collection is asked by vectors")
        documents = None if query.doc_ids is None else {DOCUMENT: {"$in": listed("doc_ids", query.doc_ids)}}
        # An index whose nodes are all in the store names none of them, and means all.
        named = _ids(query.node_ids or None)
        options: dict[str, Any] = {
            "k": query.similarity_top_k * (kwargs.get("mmr_prefetch_factor", MMR_PREFETCH) if diverse else 1),
            **({} if kwargs.get("search_list") is not None else {"recall": self._recall}),
            **{name: value for name, value in kwargs.items() if name in SEARCHING},
            "filter": _all_of(named, documents, condition(query.filters, self._typed)),
            "columns": [TEXT, NODE, KIND],
            "vectors": diverse,
        }
        return query.query_embedding, options

    def _result(
        self, query: VectorStoreQuery, found: FoundRows, kwargs: dict[str, Any]
    ) -> VectorStoreQueryResult:
        nodes, ids = _nodes(found.metadata), found.ids.tolist()
        if query.mode != VectorStoreQueryMode.MMR:
            scores = [self._similarity(float(distance)) for distance in found.distances]
            return VectorStoreQueryResult(nodes=nodes, similarities=scores, ids=ids)
        if found.vectors is None or not ids:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        scores, places = get_top_k_mmr_embeddings(
            query.query_embedding or [],
            found.vectors.astype("f8").tolist(),
            similarity_top_k=query.similarity_top_k,
            embedding_ids=list(range(len(ids))),
            mmr_threshold=kwargs.get("mmr_threshold", query.mmr_threshold),
        )
        chosen = [nodes[place] for place in places]
        return VectorStoreQueryResult(nodes=chosen, similarities=scores, ids=[ids[place] for place in places])

    def _similarity(self, distance: float) -> float:
        if self._metric == "cosine":
            return 1.0 - distance
        return -distance if self._metric == "ip" else 1.0 / (1.0 + distance)


def condition(filters: MetadataFilters | None, columns: Mapping[str, str]) -> dict[str, Any] | None:
    """Filters of LlamaIndex as a filter of a collection with these ``columns``.

    LlamaIndex knows no unknown: a node without the key matches ``NE`` and ``NIN``, and no other operator, and
    ``NOT`` matches where none of its filters does.

    >>> from llama_index.core.vector_stores.types import MetadataFilters
    >>> condition(MetadataFilters.from_dicts([{"key": "year", "value": 2020, "operator": ">="}]), {})
    {'year': {'$gte': 2020, '$exists': True}}
    """
    if filters is None or not filters.filters:
        return None
    parts = [_one(one, columns) for one in filters.filters]
    if filters.condition == FilterCondition.OR:
        return _joined("$or", parts)
    if filters.condition == FilterCondition.NOT:
        return {"$not": _joined("$or", parts)}
    return _joined("$and", parts)


def _is_empty(filters: MetadataFilters | None) -> bool:
    """Whether there are none, or some within them are none: they match what nobody named."""
    if filters is None or not filters.filters:
        return True
    return any(isinstance(one, MetadataFilters) and _is_empty(one) for one in filters.filters)


def _one(filter: MetadataFilter | MetadataFilters, columns: Mapping[str, str]) -> dict[str, Any]:
    if isinstance(filter, MetadataFilters):
        # Nested and empty: every node matches.
        return condition(filter, columns) or {}
    key, operator, value = filter.key, filter.operator, filter.value
    if operator == FilterOperator.IS_EMPTY:
        empty: list[dict[str, Any]] = [{key: ""}] if columns.get(key) == "string" else []
        return _joined("$or", [{key: None}, *empty])
    if operator in COMPARISONS:
        return {key: {COMPARISONS[operator]: value, "$exists": True}}
    if operator in NEGATIONS:
        return {"$or": [{key: {NEGATIONS[operator]: value}}, {key: None}]}
    raise ValueError(
        f"the filter: {key!r} is compared by {operator.value!r}, which collections do not have: they do not search "
        "within texts. Declare a column of lists of words, and use 'contains', 'any' or 'all'"
    )


def _joined(word: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    return parts[0] if len(parts) == 1 else {word: parts}


def _ids(ids: list[str] | None) -> dict[str, Any] | None:
    return None if ids is None else {"id": {"$in": listed("node_ids", ids)}}


def _all_of(*conditions: dict[str, Any] | None) -> dict[str, Any] | None:
    given = [one for one in conditions if one is not None]
    return _joined("$and", given) if given else None


def _nodes(metadata: Metadata) -> list[BaseNode]:
    columns = zip(metadata[NODE], metadata[KIND], metadata[TEXT], strict=True)
    return [
        metadata_dict_to_node({"_node_content": node, "_node_type": kind}, text=text)
        for node, kind, text in columns
    ]
