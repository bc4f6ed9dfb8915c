// Mastra's store for S3 Vectors.
import assert from "node:assert/strict";
import { S3VectorsClient, CreateVectorBucketCommand } from "@aws-sdk/client-s3vectors";
import { S3Vectors } from "@mastra/s3vectors";

const vectorBucketName = "mastra-bucket";
await new S3VectorsClient({}).send(new CreateVectorBucketCommand({ vectorBucketName }));
const store = new S3Vectors({ id: "s3vectors", vectorBucketName, clientConfig: { region: "local" } });
await store.connect();
await store.createIndex({ indexName: "my-index", dimension: 3, metric: "cosine" });
assert.deepEqual(await store.listIndexes(), ["my-index"]);
const metadata = [{ category: "a", price: 1 }, { category: "b", price: 2 }, { category: "a", price: 3 }];
const ids = await store.upsert({ indexName: "my-index", vectors: [[1, 0, 0], [0, 1, 0], [1, 1, 0]], metadata });
assert.equal(ids.length, 3);
const all = await store.query({ indexName: "my-index", queryVector: [1, 0.1, 0], topK: 2 });
assert.equal(all[0].id, ids[0]);
const some = await store.query({ indexName: "my-index", queryVector: [0, 1, 0], topK: 3, filter: { category: "a" } });
assert.deepEqual(some.map((one) => one.metadata.category), ["a", "a"]);
assert.equal((await store.describeIndex({ indexName: "my-index" })).dimension, 3);
await store.deleteVector({ indexName: "my-index", id: ids[0] });
assert.equal((await store.query({ indexName: "my-index", queryVector: [1, 0, 0], topK: 3 })).length, 2);
await store.deleteIndex({ indexName: "my-index" });
await store.disconnect();
console.log("Mastra: passed");
