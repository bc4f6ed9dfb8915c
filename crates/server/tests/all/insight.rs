//! Insight: the caller's key, counters, maps, explanations, recall curves and audits.

use crate::harness::{Answer, READER, TEAM, TestServer};
use bathyal_index::{AuditOptions, BuildOptions, build};
use bathyal_kernels::Element;
use bathyal_server::{Server, ServerOptions};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn as_key(server: &TestServer, secret: &str, path: &str) -> Answer {
    Answer::of(server.client.get(server.url(path)).bearer_auth(secret).send().unwrap())
}

/// Adds a collection of rows in two groups, most of them in a segment.
fn two_groups(server: &TestServer, name: &str, count: u64) {
    server.create(name);
    let group = |i: u64| if i.is_multiple_of(4) { 100.0 } else { 0.0 };
    let row = |i: u64| {
        let lang = if i.is_multiple_of(4) { "far" } else { "near" };
        json!({ "id": i, "v": [group(i) + (i % 7) as f64, (i % 5) as f64], "year": i, "lang": lang })
    };
    let add =
        |rows: Vec<Value>| server.send(&format!("/v1/collections/{name}/add"), json!({ "rows": rows })).ok();
    add((0..count - 10).map(row).collect());
    server.send(&format!("/v1/collections/{name}/flush"), json!({})).ok();
    add((count - 10..count).map(row).collect());
}

fn points(map: &Value) -> Vec<(f64, f64)> {
    let points = map["points"].as_array().unwrap();
    points.iter().map(|point| (point[0].as_f64().unwrap(), point[1].as_f64().unwrap())).collect()
}

#[test]
fn a_key_learns_its_own_rights() {
    let server = TestServer::start();
    let me = as_key(&server, READER, "/v1/me").ok();
    assert_eq!((&me["name"], &me["right"], &me["prefix"]), (&"reader".into(), &"read".into(), &"".into()));
    let me = as_key(&server, TEAM, "/v1/me").ok();
    assert_eq!((&me["right"], &me["prefix"]), (&"write".into(), &"team-".into()));
    assert!(me["version"].as_str().unwrap().contains('.') && me.get("secret").is_none());
}

#[test]
fn counters_grow_with_requests() {
    let server = TestServer::start();
    server.create_filled("words", 30);
    let before = server.get("/v1/collections/words/stats").ok();
    assert_eq!((&before["rows"], &before["queries"]), (&30.into(), &0.into()));
    assert_eq!(before["path"], "words");
    server.send("/v1/collections/words/search", json!({ "vectors": [[0, 0], [9, 0]] })).ok();
    server.send("/v1/collections/words/search", json!({ "vector": [0] })).refused(400, "invalid_argument");
    assert_eq!(server.get("/v1/collections/words/stats").ok()["queries"], 2);
    let stats = server.get("/v1/stats").ok();
    assert_eq!((&stats["open_collections"], &stats["open_indexes"]), (&1.into(), &0.into()));
    assert!(stats["in_flight"].as_u64().unwrap() >= 1);
    let of = |status: u64| {
        let all = stats["requests"].as_array().unwrap();
        let found = all.iter().find(|one| {
            one["path"] == "/v1/collections/{name}/search" && one["status"].as_u64() == Some(status)
        });
        found.unwrap()["requests"].as_u64().unwrap()
    };
    assert_eq!((of(200), of(400)), (1, 1));
}

#[test]
fn a_map_shows_groups_apart_and_brings_the_rows() {
    let server = TestServer::start();
    two_groups(&server, "words", 400);
    let map = |body: Value| server.send("/v1/collections/words/map", body).ok();
    let all = map(json!({ "columns": ["lang"] }));
    assert_eq!(
        (points(&all).len(), all["rows"].as_array().unwrap().len(), &all["of"]),
        (400, 400, &400.into())
    );
    let rows = all["rows"].as_array().unwrap();
    let ids: BTreeSet<u64> = rows.iter().map(|row| row["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), 400, "each row is drawn once, from segments and from memory");
    assert!(rows[0].get("year").is_none() && rows[0].get("v").is_none(), "{}", rows[0]);
    assert!(all["shares"][0].as_f64().unwrap() > 0.9, "{}", all["shares"]);
    let of = |lang: &str| {
        let wanted = rows.iter().zip(points(&all)).filter(|(row, _)| row["lang"] == lang);
        wanted.map(|(_, (x, _))| x).collect::<Vec<f64>>()
    };
    let (far, near) = (of("far"), of("near"));
    assert_eq!(far.len(), 100);
    let apart = |a: &[f64], b: &[f64]| {
        a.iter().copied().fold(f64::MAX, f64::min) > b.iter().copied().fold(f64::MIN, f64::max)
    };
    assert!(apart(&far, &near) || apart(&near, &far));

    let drawn = |seed: u64| map(json!({ "rows": 50, "seed": seed }));
    assert_eq!((points(&drawn(1)).len(), drawn(1)), (50, drawn(1)));
    assert_ne!(drawn(1)["rows"], drawn(2)["rows"]);
    let filtered = map(json!({ "filter": "lang = 'far'", "columns": ["lang"] }));
    assert_eq!((&filtered["of"], points(&filtered).len()), (&100.into(), 100));
    assert!(filtered["rows"].as_array().unwrap().iter().all(|row| row["lang"] == "far"));
    assert_eq!(map(json!({ "filter": "false" }))["points"], json!([]));
    let refused =
        |body: Value| server.send("/v1/collections/words/map", body).refused(400, "invalid_argument");
    assert!(refused(json!({ "columns": ["color"] })).contains("no column \"color\""));
    assert!(refused(json!({ "field": "w" })).contains("no field of vectors \"w\""));
    assert!(refused(json!({ "colour": 1 })).contains("unknown field"));
    server.create("none");
    assert_eq!(server.send("/v1/collections/none/map", json!({})).ok()["points"], json!([]));
}

#[test]
fn a_query_is_explained_in_each_part() {
    let server = TestServer::start();
    two_groups(&server, "words", 400);
    let explain = |body: Value| server.send("/v1/collections/words/explain", body);
    for query in [json!({ "vector": [1, 1] }), json!({ "like": 3, "k": 5 })] {
        let explained = explain(query).ok();
        let segments = explained["segments"].as_array().unwrap();
        assert_eq!((segments.len(), &segments[0]["rows"]), (1, &390.into()));
        let explanation = &segments[0]["explanation"];
        assert!(explanation["total_ns"].as_u64().unwrap() > 0, "{explanation}");
        assert!(explanation["predicted"]["total_ns"].as_f64().unwrap() > 0.0, "{explanation}");
        assert_eq!((&explanation["family"], &explanation["ids"]), (&"flat".into(), &json!([])));
        assert_eq!(explained["memory_rows"], 10);
    }
    let explained = explain(json!({ "vector": [1, 1], "filter": "lang = 'far'", "k": 3 })).ok();
    let filtered = &explained["segments"][0]["filtered"];
    assert!(filtered["plan"]["matches"].as_u64().unwrap() > 0, "{explained}");
    assert!(filtered["total_ns"].as_u64().unwrap() > 0, "{explained}");
    assert!(explained["segments"][0].get("explanation").is_none(), "{explained}");
    let refused =
        explain(json!({ "vector": [1, 1], "filter": "color > 3" })).refused(400, "invalid_argument");
    assert!(refused.contains("color"), "{refused}");
    let refused = explain(json!({ "vectors": [[1, 1], [2, 2]] })).refused(400, "invalid_argument");
    assert!(refused.contains("one query"), "{refused}");
    explain(json!({ "like": 4000 })).refused(404, "not_found");
}

#[test]
fn recall_is_audited_and_its_curves_are_told() {
    let server = TestServer::start();
    two_groups(&server, "words", 400);
    let curves = server.send("/v1/collections/words/recall", json!({})).ok();
    let segment = &curves["segments"][0];
    assert_eq!((&segment["family"], &segment["rows"]), (&"flat".into(), &390.into()));
    assert_eq!(segment["curves"][0]["calibration"], "build");
    server.send("/v1/collections/words/recall", json!({ "k": 0 })).refused(400, "invalid_argument");

    let audit = |body: Value| server.send("/v1/collections/words/audit", body);
    let drawn = audit(json!({ "queries": 20, "recalls": [0.9, 1.0] })).ok();
    assert_eq!((&drawn["queries"], drawn["recalls"].as_array().unwrap().len()), (&20.into(), 2));
    assert_eq!((&drawn["recalls"][0]["found"], &drawn["recalls"][0]["reached"]), (&1.0.into(), &true.into()));
    let given = audit(json!({ "vectors": [[0, 0], [1, 1], [2, 2]], "k": 3, "filter": "lang = 'far'" })).ok();
    assert_eq!((&given["queries"], &given["k"]), (&3.into(), &3.into()));
    let refused = audit(json!({ "vectors": [[0]] })).refused(400, "invalid_argument");
    assert!(refused.contains("1 components"), "{refused}");
    server.create("none");
    let refused = server.send("/v1/collections/none/audit", json!({})).refused(400, "invalid_argument");
    assert!(refused.contains("no rows"), "{refused}");
}

#[test]
fn live_searches_are_audited_if_the_server_is_told_to() {
    let audit = |share| Some(AuditOptions { share, ..AuditOptions::default() });
    let server = TestServer::with(|options| ServerOptions { audit: audit(1.0), ..options });
    two_groups(&server, "words", 400);
    let until = Instant::now() + Duration::from_secs(60);
    let found = loop {
        server.send("/v1/collections/words/search", json!({ "vector": [3, 1], "recall": 0.9 })).ok();
        let stats = server.get("/v1/collections/words/stats").ok();
        assert_eq!(stats["audit"]["share"], 1.0, "{stats}");
        let recalls = stats["audit"]["recalls"].as_array().unwrap().clone();
        if let Some(found) = recalls.into_iter().next() {
            break found;
        }
        assert!(Instant::now() < until, "nothing is audited: {stats}");
    };
    let number = |name: &str| found[name].as_f64().unwrap();
    assert!((number("asked") - 0.9).abs() < 1e-6 && number("found") > 0.9, "{found}");

    let server = TestServer::start();
    server.create("words");
    assert!(server.get("/v1/collections/words/stats").ok().get("audit").is_none());
    let folder = tempfile::tempdir().unwrap();
    let options = ServerOptions::new(folder.path().join("data"), folder.path().join("keys.toml"));
    let refused = Server::start(ServerOptions { audit: audit(1.5), ..options }).err().unwrap().to_string();
    assert!(refused.contains("above 0 and at most 1"), "{refused}");
}

#[test]
fn a_wrong_filter_is_refused_with_its_place() {
    let server = TestServer::start();
    two_groups(&server, "words", 40);
    let cases = [
        ("year >= and lang = 'de'", 8),
        ("lang = 'é' and yaer > 3", 15),
        ("year > 3 or (year < 9 and year = 'x')", 26),
        ("contains(lang, 'd')", 9),
        ("\"lang\" > 3", 0),
    ];
    for (filter, place) in cases {
        for (operation, rest) in [
            ("scan", json!({})),
            ("count", json!({})),
            ("search", json!({ "vector": [0, 0] })),
            ("map", json!({})),
            ("audit", json!({})),
        ] {
            let mut body = rest.clone();
            body["filter"] = filter.into();
            let answer = server.send(&format!("/v1/collections/words/{operation}"), body);
            assert_eq!(answer.json["error"]["position"], place, "{operation} {filter}: {}", answer.json);
            let message = answer.refused(400, "invalid_argument");
            assert!(message.contains('^'), "{message}");
        }
    }
    let in_json = json!({ "filter": { "yaer": 3 } });
    let answer = server.send("/v1/collections/words/count", in_json);
    assert!(answer.json["error"].get("position").is_none());
    assert!(answer.refused(400, "invalid_argument").contains("yaer"));
    let other = server.send("/v1/collections/words/search", json!({ "vector": [0], "filter": "year > 3" }));
    assert!(other.json["error"].get("position").is_none(), "the filter is right");
    other.refused(400, "invalid_argument");
}

#[test]
fn an_index_has_a_map_an_explanation_and_curves() {
    let server = TestServer::start();
    let components = |i: u32| [(i % 50) as f32, (i % 3) as f32, (i / 50) as f32];
    let bytes: Vec<u8> = (0..2000).flat_map(components).flat_map(f32::to_le_bytes).collect();
    let base = VectorFile::from_rows(Element::F32, 3, bytes).unwrap();
    build(&base, &server.data().join("things"), &BuildOptions::default(), &Silent).unwrap();
    let send = |operation: &str, body: Value| server.send(&format!("/v1/indexes/things/{operation}"), body);
    let map = send("map", json!({ "rows": 100 })).ok();
    assert_eq!(
        (points(&map).len(), map["ids"].as_array().unwrap().len(), &map["of"]),
        (100, 100, &2000.into())
    );
    let ids: Vec<u64> = map["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
    assert!(ids.is_sorted_by(|a, b| a < b) && ids.iter().all(|id| *id < 2000));
    let explained = send("explain", json!({ "vector": [1, 2, 3], "k": 5 })).ok();
    assert_eq!((&explained["k"], &explained["family"]), (&5.into(), &"cluster".into()));
    assert!(!explained["phases"].as_array().unwrap().is_empty(), "{explained}");
    send("explain", json!({ "vectors": [[1, 2, 3], [1, 2, 3]] })).refused(400, "invalid_argument");
    let curves = send("recall", json!({ "k": 10 })).ok();
    let points = curves["curves"][0]["points"].as_array().unwrap();
    let recalls: Vec<f64> = points.iter().map(|point| point["recall"].as_f64().unwrap()).collect();
    assert!(!recalls.is_empty() && recalls.is_sorted(), "{curves}");
    assert!(points.iter().all(|point| point["predicted_ns"].as_f64().unwrap() > 0.0), "{curves}");
}
