// The SDK of AWS for JavaScript: writes, queries with a filter, pages, tags and errors.
import assert from "node:assert/strict";
import {
  S3VectorsClient, CreateVectorBucketCommand, CreateIndexCommand, PutVectorsCommand, QueryVectorsCommand,
  GetVectorsCommand, DeleteVectorsCommand, DeleteIndexCommand, DeleteVectorBucketCommand, TagResourceCommand,
  ListTagsForResourceCommand, paginateListVectors, NotFoundException, ValidationException,
} from "@aws-sdk/client-s3vectors";

const client = new S3VectorsClient({});
const vectorBucketName = "javascript", index = { vectorBucketName, indexName: "numbers" };
await client.send(new CreateVectorBucketCommand({ vectorBucketName }));
const made = await client.send(
  new CreateIndexCommand({ ...index, dataType: "float32", dimension: 2, distanceMetric: "euclidean" }),
);
const vectors = Array.from({ length: 40 }, (_, at) => ({
  key: `key ${at} ü`, data: { float32: [at, 1] }, metadata: { even: at % 2 === 0, at, tags: ["a", `t${at % 3}`] },
}));
await client.send(new PutVectorsCommand({ ...index, vectors }));
const query = { ...index, topK: 3, queryVector: { float32: [10.2, 1] }, returnDistance: true, returnMetadata: true };
const found = await client.send(new QueryVectorsCommand({ ...query, filter: { even: true } }));
assert.deepEqual(found.vectors.map((one) => one.metadata.at), [10, 12, 8]);
assert.ok(Math.abs(found.vectors[0].distance - 0.2) < 1e-5);
const keys = [];
for await (const page of paginateListVectors({ client, pageSize: 7 }, index)) keys.push(...page.vectors.map((one) => one.key));
assert.equal(new Set(keys).size, 40);
await client.send(new TagResourceCommand({ resourceArn: made.indexArn, tags: { owner: "é" } }));
const tags = await client.send(new ListTagsForResourceCommand({ resourceArn: made.indexArn }));
assert.deepEqual(tags.tags, { owner: "é" });
await client.send(new DeleteVectorsCommand({ ...index, keys: ["key 10 ü"] }));
const gotten = await client.send(new GetVectorsCommand({ ...index, keys: ["key 10 ü", "key 11 ü"], returnData: true }));
assert.deepEqual(gotten.vectors.map((one) => one.data.float32), [[11, 1]]);
await assert.rejects(
  client.send(new QueryVectorsCommand({ ...query, topK: 0 })),
  (error) => error instanceof ValidationException && error.fieldList[0].path === "topK",
);
await client.send(new DeleteIndexCommand(index));
await assert.rejects(client.send(new QueryVectorsCommand(query)), NotFoundException);
await client.send(new DeleteVectorBucketCommand({ vectorBucketName }));
console.log("JavaScript: passed");
