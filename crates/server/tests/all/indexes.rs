//! Indexes: the answers are those of the library.

use crate::harness::TestServer;
use bathyal_index::{BuildOptions, Index, OpenOptions, RangeOptions, SearchOptions, build};
use bathyal_kernels::Element;
use bathyal_tier::Control;
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use serde_json::{Value, json};

const DIM: usize = 8;

fn vectors(count: usize, seed: u64) -> VectorFile {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    let values: Vec<u8> = (0..count * DIM).flat_map(|_| next().to_le_bytes()).collect();
    VectorFile::from_rows(Element::F32, DIM, values).unwrap()
}

fn as_json(queries: &VectorFile) -> Value {
    let floats = |row: &[u8]| -> Vec<f32> {
        row.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
    };
    (0..queries.count()).map(|query| json!(floats(queries.row(query)))).collect()
}

fn pairs(answer: &Value, query: usize) -> Vec<(u32, f32)> {
    let neighbors = answer["results"][query]["neighbors"].as_array().unwrap();
    let pair = |row: &Value| (row["id"].as_u64().unwrap() as u32, row["distance"].as_f64().unwrap() as f32);
    neighbors.iter().map(pair).collect()
}

#[test]
fn an_index_answers_as_the_library_does() {
    let server = TestServer::start();
    let data = vectors(3000, 1);
    build(&data, &server.data().join("points"), &BuildOptions::default(), &Silent).unwrap();
    let queries = vectors(20, 2);
    let index = Index::open(server.data().join("points"), &OpenOptions::default()).unwrap();
    assert_eq!(server.get("/v1/indexes").ok(), json!({ "names": ["points"] }));
    let described = server.get("/v1/indexes/points").ok();
    assert_eq!((&described["vectors"], &described["family"]), (&json!(3000), &json!("cluster")));
    let options = SearchOptions { k: 5, ..SearchOptions::default() };
    let expected = index.search(&queries, &options, Control::default()).unwrap();
    let asked = json!({ "vectors": as_json(&queries), "k": 5 });
    let found = server.send("/v1/indexes/points/search", asked).ok();
    for query in 0..20 {
        let row = query * 5..query * 5 + 5;
        let expected: Vec<(u32, f32)> =
            expected.ids[row.clone()].iter().copied().zip(expected.distances[row].iter().copied()).collect();
        assert_eq!(pairs(&found, query), expected);
    }
    let expected = index.range_search(&queries, 0.1, &RangeOptions::default(), Control::default()).unwrap();
    let found =
        server.send("/v1/indexes/points/range", json!({ "vectors": as_json(&queries), "radius": 0.1 })).ok();
    let counts: Vec<usize> = (0..20).map(|query| pairs(&found, query).len()).collect();
    let expected: Vec<usize> = expected.offsets.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(counts, expected);
    let got = server.send("/v1/indexes/points/get", json!({ "ids": [7, 2999] })).ok();
    let floats = |vector: &Value| -> Vec<f32> {
        vector.as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
    };
    assert_eq!(floats(&got["vectors"][0]), floats(&as_json(&data)[7]));
    server.send("/v1/indexes/points/get", json!({ "ids": [3000] })).refused(400, "invalid_argument");
    let audit = |body: Value| server.send("/v1/indexes/points/audit", body);
    let audited = audit(json!({ "queries": 40, "recalls": [0.9, 0.99], "k": 5 })).ok();
    assert_eq!((&audited["queries"], &audited["k"]), (&40.into(), &5.into()), "{audited}");
    let found = |at: usize| audited["recalls"][at]["found"].as_f64().unwrap();
    assert!(found(0) > 0.8 && found(1) >= found(0), "{audited}");
    assert_eq!(audit(json!({ "vectors": as_json(&queries) })).ok()["queries"], queries.count());
    audit(json!({ "vectors": [[1]] })).refused(400, "invalid_argument");
    audit(json!({ "recalls": [2] })).refused(400, "invalid_argument");
    let stats = server.get("/v1/indexes/points/stats").ok();
    assert_eq!((&stats["index"], stats["queries"].as_u64().unwrap() >= 20), (&json!("points"), true));
    server.get("/v1/indexes/none").refused(404, "not_found");
    server.get("/v1/collections/points").refused(404, "not_found");
    for (body, reason) in [
        (json!({ "vector": [1, 2] }), "has 2 components; the vectors have 8"),
        (json!({ "vector": vec![0; 8], "calibration": "none" }), "none"),
        (json!({}), "send `vector` or `vectors`"),
    ] {
        let refused = server.send("/v1/indexes/points/search", body).refused(400, "invalid_argument");
        assert!(refused.contains(reason), "{refused}");
    }
}

#[test]
fn each_request_is_told_about_its_own_queries() {
    let server = TestServer::start();
    let data = vectors(3000, 1);
    build(&data, &server.data().join("points"), &BuildOptions::default(), &Silent).unwrap();
    let far = json!({ "vector": vec![40.0; DIM], "k": 10 });
    let near = json!({ "vectors": as_json(&vectors(1, 3)), "k": 10 });
    std::thread::scope(|scope| {
        for caller in 0..16 {
            let (server, far, near) = (&server, far.clone(), near.clone());
            scope.spawn(move || {
                for _ in 0..10 {
                    let body = if caller % 2 == 0 { far.clone() } else { near.clone() };
                    let answer = server.send("/v1/indexes/points/search", body).ok();
                    let is_unlike = answer["notes"].to_string().contains("farther");
                    assert_eq!(is_unlike, caller % 2 == 0, "{}", answer["notes"]);
                }
            });
        }
    });
}
