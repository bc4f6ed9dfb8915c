"""A vector store of LangChain over a collection. Needs ``langchain-core``: ``pip install 'bathyal[langchain]'``."""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

try:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore, VectorStoreRetriever
    from langchain_core.vectorstores.utils import maximal_marginal_relevance
except ModuleNotFoundError as error:
    message = "bathyal.langchain needs langchain-core: pip install 'bathyal[langchain]'"
    raise ModuleNotFoundError(message, name=error.name) from error

from bathyal import awaiting
from bathyal.arguments import Metric, Path, whole
from bathyal.collection import Collection
from bathyal.documents import as_json, as_list, column_values, filter_advice, from_json, open_or_create
from bathyal.found_rows import FoundRows, Metadata
from bathyal.keywords import parameter_names, refuse_unknown
from bathyal.reading import Filter

TEXT = "text"
"""The column of the texts."""
METADATA = "metadata"
"""The column of a document's metadata, as JSON."""

OPENING = parameter_names(Collection.open, "path")
CREATING = parameter_names(Collection.create, "path", "dim", "metric", "columns", "vectors", "id")
"""The options that are passed to collections. The store sets their other options itself."""
SEARCHING = ["filter", "recall", "search_list", "threads", "timeout"]
"""The options of every search."""
RETRIEVING = ["k", "fetch_k", "lambda_mult", "score_threshold", *SEARCHING]
"""The options of a retriever's searches, of any type."""
ADDING = ["metadatas", "ids", "batch_size"]
DELETING = ["ids", "filter", "delete_all"]
FIELDS = VectorStoreRetriever.model_fields


class BathyalVectorStore(VectorStore):
    """Documents of LangChain in a :class:`Collection`.

    The text of a document is in the column ``text``, and all its metadata is in the column ``metadata``, as
    JSON. Filters can use those keys of the metadata that are also columns of the collection; declare them
    when the collection is created. Scores are distances; smaller is nearer.

    Args:
        collection: an open collection whose ids are strings, with the columns ``text`` and ``metadata`` of type
            ``string`` and one field of vectors. The caller closes it.
        embedding: computes the vectors of texts.
        recall: share of the true nearest among the matching documents that a search should find.

    >>> from langchain_core.embeddings import DeterministicFakeEmbedding
    >>> embedding = DeterministicFakeEmbedding(size=64)
    >>> store = BathyalVectorStore.create("papers.collection", embedding, columns={"year": "int64"})
    >>> store.add_texts(["one", "two"], [{"year": 2019, "by": "Ada"}, {"year": 2024}], ids=["a", "b"])
    ['a', 'b']
    >>> store.similarity_search("two", k=1)[0].page_content
    'two'
    >>> store.similarity_search("two", k=1, filter="year < 2020")[0].metadata
    {'year': 2019, 'by': 'Ada'}
    >>> store.similarity_search("two", filter={"by": "Ada"})
    Traceback (most recent call last):
    ValueError: the filter: there is no column "by"; there is text, metadata, year, and the ids are "id". A
        filter can use only keys of the metadata that were declared as columns when the collection was
        created: columns={"by": "string"}
    >>> store.collection.close()
    """

    def __init__(self, collection: Collection, embedding: Embeddings, *, recall: float = 0.95) -> None:
        schema = collection.schema
        kinds = {column["name"]: column["type"] for column in schema["columns"]}
        missing = [name for name in (TEXT, METADATA) if kinds.get(name) != "string"]
        if schema["id"] != "string" or len(schema["vectors"]) != 1 or missing:
            raise ValueError(
                f"{collection.path}: a vector store of LangChain requires ids that are strings, one vector field, "
                f"and the columns {TEXT!r} and {METADATA!r} of type string; create one with "
                "BathyalVectorStore.create"
            )
        self.collection = collection
        self._embedding = embedding
        self._recall = recall
        self._metric = schema["vectors"][0]["metric"]
        self._typed = {name: kind for name, kind in kinds.items() if name not in (TEXT, METADATA)}

    @classmethod
    def create(
        cls,
        path: Path,
        embedding: Embeddings,
        *,
        columns: dict[str, str] | None = None,
        dim: int | None = None,
        metric: Metric = "cosine",
        recall: float = 0.95,
        **options: Any,
    ) -> BathyalVectorStore:
        """Creates a collection for documents at ``path``.

        Args:
            columns: keys of the metadata that filters can use, and their types, as for
                :meth:`Collection.create`.
            dim: components of the vectors; None takes those of a vector that ``embedding`` computes.
            options: those of :meth:`Collection.create`.

        Raises:
            FileExistsError: ``path`` exists.
            TypeError: an option that a collection does not have.
            ValueError: an invalid schema.
        """
        refuse_unknown("create()", options, [*parameter_names(cls.create, "path", "embedding"), *CREATING])
        made = {TEXT: "string", METADATA: "string"}
        kept = made.keys() & (columns or {}).keys()
        if kept:
            raise ValueError(f"columns: {min(kept)!r} is reserved for the {min(kept)} of a document")
        width = len(embedding.embed_query("dim")) if dim is None else dim
        all_columns = {**made, **(columns or {})}
        collection = Collection.create(path, width, metric, columns=all_columns, **options)
        return cls(collection, embedding, recall=recall)

    @classmethod
    def open(
        cls, path: Path, embedding: Embeddings, *, recall: float = 0.95, **options: Any
    ) -> BathyalVectorStore:
        """Opens the collection at ``path``; ``options`` are those of :meth:`Collection.open`."""
        refuse_unknown("open()", options, ["recall", *OPENING])
        return cls(Collection.open(path, **options), embedding, recall=recall)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        path: Path | None = None,
        columns: dict[str, str] | None = None,
        dim: int | None = None,
        metric: Metric | None = None,
        recall: float = 0.95,
        **options: Any,
    ) -> BathyalVectorStore:
        """Adds texts to the collection at ``path``, which is created if it does not exist.

        Args:
            path: a folder or an address. None keeps the documents in memory, for as long as the process runs.
            columns, dim, metric: as for :meth:`create`. An existing collection must have them.
            options: those of :meth:`Collection.open`.

        Raises:
            TypeError: an option that a collection does not have.
            ValueError: an existing collection lacks a column, or has another dim or metric.
        """
        accepted = [
            *parameter_names(cls.from_texts, "texts", "embedding"),
            *(name for name in OPENING if name != "version"),
        ]
        refuse_unknown("from_texts()", options, accepted)
        place = f"memory://langchain/{uuid.uuid4()}" if path is None else path
        store = open_or_create(
            lambda: cls.open(place, embedding, recall=recall, **options)._suits(columns, dim, metric),
            lambda: cls.create(
                place,
                embedding,
                columns=columns,
                dim=dim,
                metric=metric or "cosine",
                recall=recall,
                **options,
            ),
        )
        store.add_texts(texts, metadatas, ids=ids)
        return store

    def _suits(
        self, columns: dict[str, str] | None, dim: int | None, metric: Metric | None
    ) -> BathyalVectorStore:
        """Returns this store if its collection has these columns, this dim and this metric."""
        (field,) = self.collection.schema["vectors"]
        asked: dict[str, tuple[Any, Any]] = {}
        for name, value in {"dim": dim, "metric": metric}.items():
            if value is not None:
                asked[name] = (value, field[name])
        for name, kind in (columns or {}).items():
            asked[f"columns: {name!r}"] = (kind, self._typed.get(name))
        for name, (wanted, found) in asked.items():
            if wanted != found:
                self.collection.close()
                raise ValueError(
                    f"{self.collection.path}: {name} is {wanted!r}, and the existing collection has "
                    f"{'none' if found is None else repr(found)}; leave it out, or choose another path"
                )
        return self

    @property
    def embeddings(self) -> Embeddings:
        """The object that computes the vectors of texts."""
        return self._embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Adds texts, and replaces those with the same ids: all of them, or none.

        Args:
            ids: their ids; for None, a new id is generated.
            batch_size: texts per call of the embedding; None passes all. All are written at once.

        Raises:
            ValueError: different numbers of texts, metadata and ids; a value that its column cannot hold.
            TypeError: metadata that JSON cannot hold; an unknown argument.
        """
        refuse_unknown("add_texts()", kwargs, ADDING)
        all_texts = as_list("texts", texts, "texts")
        made, rows = _ids(all_texts, ids), self._rows(all_texts, metadatas)
        vectors: list[list[float]] = []
        for batch in _batches(all_texts, batch_size):
            vectors += self._embedding.embed_documents(batch)
        if made:
            self.collection.upsert(made, vectors, rows)
        return made

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: Sequence[str | None] | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """:meth:`add_texts`, awaited."""
        refuse_unknown("aadd_texts()", kwargs, ADDING)
        all_texts = as_list("texts", texts, "texts")
        made, rows = _ids(all_texts, ids), self._rows(all_texts, metadatas)
        vectors: list[list[float]] = []
        for batch in _batches(all_texts, batch_size):
            vectors += await self._embedding.aembed_documents(batch)
        if made:
            await self.collection.upsert_async(made, vectors, rows)
        return made

    def _rows(self, texts: list[str], metadatas: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
        """Returns the columns of each document."""
        given: list[dict[str, Any]] = metadatas or [{}] * len(texts)
        if isinstance(given, Mapping) or not all(isinstance(metadata, Mapping) for metadata in given):
            raise TypeError("metadatas: expected a list with a dictionary for each text")
        if len(given) != len(texts):
            raise ValueError(f"there are {len(given)} metadatas for {len(texts)} texts")
        return [
            {TEXT: text, METADATA: as_json(metadata), **column_values(metadata, self._typed)}
            for text, metadata in zip(texts, given, strict=True)
        ]

    def delete(
        self,
        ids: list[str] | None = None,
        *,
        filter: Filter | None = None,
        delete_all: bool = False,
        **kwargs: Any,
    ) -> bool:
        """Deletes the documents with these ids, those that match ``filter``, or all; pass one of the three
        arguments.

        In LangChain, a call without ids means all documents in the base class, and none in the store in
        memory. Here, all documents are deleted only with ``delete_all=True``. Returns True; unknown ids are
        not an error.

        Raises:
            TypeError: none or several of the three arguments; an unknown argument.
            ValueError: an empty filter, or a filter on keys that are not columns.
        """
        refuse_unknown("delete()", kwargs, DELETING)
        if not isinstance(delete_all, bool):
            raise TypeError(f"delete_all is {delete_all!r}; expected True or False")
        if (ids is not None) + (filter is not None) + delete_all != 1:
            raise TypeError("delete() takes ids, filter= or delete_all=True; give one of them")
        with filter_advice():
            if ids is None:
                self.collection.delete(filter="true" if filter is None else filter)
            elif chosen := as_list("ids", ids):
                self.collection.delete(chosen)
        return True

    async def adelete(
        self,
        ids: list[str] | None = None,
        *,
        filter: Filter | None = None,
        delete_all: bool = False,
        **kwargs: Any,
    ) -> bool:
        """:meth:`delete`, awaited."""
        refuse_unknown("adelete()", kwargs, DELETING)
        return await awaiting.in_thread(lambda: self.delete(ids, filter=filter, delete_all=delete_all))

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Returns the documents with these ids, in the order of the ids; unknown ids are left out."""
        rows = self.collection.get(as_list("ids", ids))
        return _documents(rows.ids, rows.metadata)

    def as_retriever(self, **kwargs: Any) -> VectorStoreRetriever:
        """Returns a retriever. It takes ``search_type``, ``search_kwargs`` and the other arguments of
        LangChain's retrievers.

        Raises:
            TypeError: an argument that retrievers do not have, or one in ``search_kwargs`` that searches do
                not have.
        """
        refuse_unknown("as_retriever()", kwargs, [name for name in FIELDS if name != "vectorstore"])
        refuse_unknown("search_kwargs of as_retriever()", kwargs.get("search_kwargs") or {}, RETRIEVING)
        return super().as_retriever(**kwargs)

    def similarity_search(
        self, query: str, k: int = 4, *, filter: Filter | None = None, **kwargs: Any
    ) -> list[Document]:
        """Returns the ``k`` documents nearest to ``query`` among those that match ``filter``: a condition in
        words or a dictionary, on the declared columns, as for :meth:`Collection.search`."""
        return self.similarity_search_by_vector(
            self._embedding.embed_query(query), k, filter=filter, **kwargs
        )

    async def asimilarity_search(
        self, query: str, k: int = 4, *, filter: Filter | None = None, **kwargs: Any
    ) -> list[Document]:
        """:meth:`similarity_search`, awaited."""
        found = await self.asimilarity_search_with_score(query, k, filter=filter, **kwargs)
        return [document for document, _ in found]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, *, filter: Filter | None = None, **kwargs: Any
    ) -> list[Document]:
        """Returns the ``k`` documents nearest to a vector."""
        found = self._find(embedding, k, False, filter=filter, **kwargs)
        return _documents(found.ids, found.metadata)

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, *, filter: Filter | None = None, **kwargs: Any
    ) -> list[Document]:
        """:meth:`similarity_search_by_vector`, awaited."""
        found = await self._find_async(embedding, k, False, filter=filter, **kwargs)
        return _documents(found.ids, found.metadata)

    def similarity_search_with_score(
        self, query: str, k: int = 4, *, filter: Filter | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """Returns the ``k`` nearest documents and their distances: one minus cosine, squared for l2, negated
        products for ip."""
        return _scored(self._find(self._embedding.embed_query(query), k, False, filter=filter, **kwargs))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, *, filter: Filter | None = None, **kwargs: Any
    ) -> list[tuple[Document, float]]:
        """:meth:`similarity_search_with_score`, awaited."""
        vector = await self._embedding.aembed_query(query)
        return _scored(await self._find_async(vector, k, False, filter=filter, **kwargs))

    def max_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filter | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """Returns ``k`` of the ``fetch_k`` nearest documents that are near the query and differ from each
        other."""
        vector = self._embedding.embed_query(query)
        return self.max_marginal_relevance_search_by_vector(
            vector, k, fetch_k, lambda_mult, filter=filter, **kwargs
        )

    async def amax_marginal_relevance_search(
        self,
        query: str,
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filter | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """:meth:`max_marginal_relevance_search`, awaited."""
        vector = await self._embedding.aembed_query(query)
        found = await self._find_async(vector, fetch_k, True, filter=filter, **kwargs)
        return _diverse(vector, found, k, lambda_mult)

    def max_marginal_relevance_search_by_vector(
        self,
        embedding: list[float],
        k: int = 4,
        fetch_k: int = 20,
        lambda_mult: float = 0.5,
        *,
        filter: Filter | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        """:meth:`max_marginal_relevance_search` for a vector."""
        found = self._find(embedding, fetch_k, True, filter=filter, **kwargs)
        return _diverse(embedding, found, k, lambda_mult)

    def _find(self, vector: list[float], k: int, vectors: bool, /, **options: Any) -> FoundRows:
        with filter_advice():
            return self.collection.search(vector, k, vectors=vectors, **self._options(options))

    async def _find_async(self, vector: list[float], k: int, vectors: bool, /, **options: Any) -> FoundRows:
        with filter_advice():
            return await self.collection.search_async(vector, k, vectors=vectors, **self._options(options))

    def _options(self, options: dict[str, Any]) -> dict[str, Any]:
        refuse_unknown("the search", options, SEARCHING)
        effort = {} if options.get("search_list") is not None else {"recall": self._recall}
        return {**effort, "columns": [TEXT, METADATA], **options}

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        """Returns a function from distances to scores, where 1 is the best score, for vectors of length 1."""
        if self._metric == "cosine":
            return lambda distance: 1.0 - distance
        if self._metric == "ip":
            return lambda distance: -distance
        return lambda distance: 1.0 - math.sqrt(max(distance, 0.0)) / math.sqrt(2.0)


def _ids(texts: list[str], ids: Sequence[str | None] | None) -> list[str]:
    """Returns the ids of the texts; for missing ids, new ones."""
    given = [None] * len(texts) if ids is None else as_list("ids", ids)
    if len(given) != len(texts):
        raise ValueError(f"there are {len(given)} ids for {len(texts)} texts")
    return [str(uuid.uuid4()) if one is None else one for one in given]


def _batches(texts: list[str], size: int | None) -> Iterator[list[str]]:
    """Yields the texts, ``size`` at a time."""
    most = len(texts) if size is None else whole("batch_size", size, least=1)
    return (texts[at : at + most] for at in range(0, len(texts), max(most, 1)))


def _documents(ids: Any, metadata: Metadata) -> list[Document]:
    columns = zip(ids, metadata[TEXT], metadata[METADATA], strict=True)
    return [Document(id=id, page_content=text or "", metadata=from_json(kept)) for id, text, kept in columns]


def _scored(found: FoundRows) -> list[tuple[Document, float]]:
    documents = _documents(found.ids, found.metadata)
    return list(zip(documents, map(float, found.distances), strict=True))


def _diverse(vector: list[float], found: FoundRows, k: int, lambda_mult: float) -> list[Document]:
    documents = _documents(found.ids, found.metadata)
    if not documents or found.vectors is None:
        return []
    query, vectors = np.asarray(vector, np.float32), list(found.vectors.astype(np.float32))
    chosen = maximal_marginal_relevance(query, vectors, lambda_mult=lambda_mult, k=k)
    return [documents[place] for place in chosen]
