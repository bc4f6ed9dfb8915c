//! Reproductions of the papers' figures, on tiny data.

use crate::workshop::{bathyal, copy, names, write_vectors};

#[test]
fn the_graph_on_second_tier_memory_is_reproduced_and_its_indexes_are_used_again() {
    let folder = copy();
    let line = "repro second-tier graph base.fbin queries.fbin --work graphs --output report --degrees 8,16 \
                --devices cxl,rdma --repeats 2 --seconds 0 --sweep 1,4 --json";
    let told = bathyal(folder.path(), line).json();
    // Two degrees in padded (3 cells) and csr (6, and 9 with the sweep), and a file each.
    let records = told["records"].as_array().unwrap();
    assert_eq!(records.len(), 2 * 3 + 6 + 9 + 2);
    for record in records {
        let device = record["device"].as_str().unwrap();
        assert_eq!(record["emulated"], device.starts_with("emulated "), "{device}");
        assert!(record["recall"].as_f64().unwrap() >= 0.9);
        assert!(record["qps"].as_f64().unwrap() > 0.0);
        assert_eq!(record["samples"].as_array().unwrap().len(), 2);
        assert_eq!(record["predicted"].is_object(), device.starts_with("emulated "));
        assert_eq!(record["share_of_dram"].is_number(), device.starts_with("emulated "));
    }
    assert!(told["model"]["median"].is_number());
    let made = names(&folder.path().join("graphs"));
    assert_eq!(made, ["groundtruth-400-25-10.ibin", "r16-csr", "r16-padded", "r8-csr", "r8-padded"]);
    let report = std::fs::read_to_string(folder.path().join("report/report.md")).unwrap();
    for part in
        ["Devices are emulated", "Figure 4", "Figure 8 (a)", "Figure 8 (d)", "Figure 9", "Queries in flight"]
    {
        assert!(report.contains(part), "{part} is missing in {report}");
    }
    for plot in ["figure-4-throughput.svg", "figure-9-cxl.svg", "figure-9-rdma.svg", "in-flight.svg"] {
        assert!(report.contains(plot) && folder.path().join("report").join(plot).exists(), "{plot}");
    }
    let lines = std::fs::read_to_string(folder.path().join("report/records.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), records.len());

    // What is there is used, and refused where it is of other vectors.
    let again = "repro second-tier graph base.fbin queries.fbin --groundtruth gt.ibin --work graphs --output again \
                 --degrees 8 --layouts csr --devices nvm --repeats 1 --seconds 0 --sweep 1 --without-file";
    assert!(bathyal(folder.path(), again).good().contains("emulated nvm"));
    let fewer = format!("{again} --vectors 300");
    bathyal(folder.path(), &fewer).fails(1, &["gt.ibin"]);
    let fewer = fewer.replace("--groundtruth gt.ibin", "");
    bathyal(folder.path(), &fewer)
        .fails(1, &["r8-csr", "over 400 vectors", "300 vectors", "another work folder"]);
}

#[test]
fn posting_lists_on_second_tier_memory_are_reproduced_and_compared_with_graphs() {
    let folder = copy();
    let line = "repro second-tier cluster base.fbin queries.fbin --work indexes --output report --replicas 4,1 \
                --devices cxl --repeats 2 --seconds 0 --centroid-share 0.1 --json";
    let told = bathyal(folder.path(), line).json();
    // Two numbers of replicas in three layouts, each in DRAM and on the device, one of them by one query at a time,
    // too; and a file each.
    let records = told["records"].as_array().unwrap();
    assert_eq!(records.len(), 2 * (2 + 2 + 4) + 6);
    let of = |record: &serde_json::Value, key: &str| record[key].as_f64().unwrap();
    for record in records {
        let device = record["device"].as_str().unwrap();
        assert_eq!(record["emulated"], device == "emulated cxl");
        assert!(of(record, "recall") >= 0.9 && of(record, "qps") > 0.0, "{record}");
        assert_eq!(record["predicted"].is_object(), device == "emulated cxl");
        assert!(of(record, "lists_per_query") >= 1.0);
        // The same lists hold the same vectors in every layout, so the same are searched and found.
        for other in records.iter().filter(|other| other["replicas"] == record["replicas"]) {
            assert_eq!(other["lists_per_query"], record["lists_per_query"]);
            assert_eq!(other["recall"], record["recall"]);
        }
    }
    let in_dram = |layout: &str| {
        let fits = |record: &&serde_json::Value| {
            record["device"] == "dram" && record["replicas"] == 4 && record["layout"] == layout
        };
        records.iter().find(fits).unwrap()
    };
    let (coupled, decoupled, grouped) = (in_dram("coupled"), in_dram("decoupled"), in_dram("grouped"));
    // So small a set is within a few gaps that are read rather than begin another read, hence bytes, not reads.
    assert!(of(grouped, "small_reads_per_query") > 0.0 && of(decoupled, "small_reads_per_query") > 0.0);
    assert!(of(grouped, "amplification") < of(coupled, "amplification"));
    assert_eq!(of(coupled, "small_reads_per_query"), 0.0);
    let findings = told["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["what"] == "reads that grouping removes"), "{findings:?}");
    assert!(told["model"]["median"].is_number());

    let report = std::fs::read_to_string(folder.path().join("report/report.md")).unwrap();
    for part in [
        "Devices are emulated",
        "Figure 4",
        "Figure 10",
        "Figure 12",
        "Equation 1",
        "repro second-tier cluster base.fbin",
        "| the paper |",
    ] {
        assert!(report.contains(part), "{part} is missing in {report}");
    }
    for plot in ["figure-4-lists.svg", "figure-10-file.svg", "figure-10-size.svg", "figure-12-cxl.svg"] {
        assert!(report.contains(plot) && folder.path().join("report").join(plot).exists(), "{plot}");
    }

    compare(folder.path());
    let other = line.replace("--centroid-share 0.1", "--centroid-share 0.2");
    bathyal(folder.path(), &other).fails(1, &["x1-coupled", "centroid share 0.1", "another work folder"]);
}

/// Compares the posting lists that lie in `folder` already with a graph.
fn compare(folder: &std::path::Path) {
    let line = "repro second-tier compare base.fbin queries.fbin --work indexes --output comparison --degrees 8 \
                --replicas 4 --devices nvm --repeats 1 --seconds 0 --centroid-share 0.1 --json";
    let told = bathyal(folder, line).json();
    // Two graphs, two indexes of lists, and groups: in DRAM, on the device, from the file.
    let records = told["records"].as_array().unwrap();
    assert_eq!(records.len(), 5 * 3);
    for record in records {
        assert!(record["recall"].as_f64().unwrap() >= 0.9, "{record}");
        assert!(record["operations_per_query"].as_f64().unwrap() > 0.0, "{record}");
    }
    let findings = told["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["place"] == "emulated nvm"), "{findings:?}");
    let report = std::fs::read_to_string(folder.join("comparison/report.md")).unwrap();
    for part in ["Figure 13", "Table 5", "lists, grouped", "graph, csr", "codes, resident"] {
        assert!(report.contains(part), "{part} is missing in {report}");
    }
    assert!(folder.join("comparison/figure-13-nvm.svg").exists());
    let made = names(&folder.join("indexes"));
    for name in ["codes", "r8-csr", "r8-padded", "x1-grouped", "x4-coupled", "x4-grouped"] {
        assert!(made.iter().any(|other| other == name), "{name} is missing in {made:?}");
    }
}

#[test]
fn e2lsh_on_storage_is_reproduced() {
    let folder = copy();
    let line = "repro e2lsh base.fbin queries.fbin --work lsh --output report --tables 6 --gammas 0.3,0.5 --sizes 100,200 -k 1,5 \
                --repeats 2 --synchronous-queries 5 --block-sizes 128 --srs-us 100 --json";
    let told = bathyal(folder.path(), line).json();
    let records = told["records"].as_array().unwrap();
    let of = |experiment: &str| -> Vec<&serde_json::Value> {
        records.iter().filter(|record| record["experiment"] == experiment).collect()
    };
    let number = |record: &serde_json::Value, key: &str| record[key].as_f64().unwrap();
    for record in of("accuracy") {
        // Each bucket that is not empty takes a read of a table and one of a block at least.
        let both = number(record, "table_reads") + number(record, "block_reads");
        assert!((number(record, "reads") - both).abs() < 1e-9, "{record}");
        assert!(number(record, "ratio") >= 1.0 && number(record, "rejected") <= number(record, "entries"));
        assert!(number(record, "searched_radii") <= number(record, "radii"), "{record}");
    }
    // What S allows is what is compared at each radius.
    let one = of("accuracy")[0];
    assert!(
        number(one, "compared") <= number(one, "candidates") * number(one, "searched_radii") + 1e-9,
        "{one}"
    );
    // Each of the ideas finds the same; filters and places of first blocks save reads, and reading early saves rounds.
    for k in [1, 5] {
        let ideas: Vec<_> = of("ideas").into_iter().filter(|record| record["k"] == k).collect();
        assert_eq!(ideas.len(), 6);
        let reads: Vec<f64> = ideas.iter().map(|record| number(record, "reads")).collect();
        assert!(reads[..5].is_sorted_by(|more, fewer| more >= fewer) && reads[4] < reads[0], "{reads:?}");
        assert!(number(ideas[5], "rounds") <= number(ideas[4], "rounds"));
        // What is read early is what would have been read later, but for what is read in vain.
        assert!((reads[5] - number(ideas[5], "wasted") - reads[4]).abs() < 1e-9, "{reads:?}");
        assert_eq!((&ideas[4]["ratio"], &ideas[4]["compared"]), (&ideas[5]["ratio"], &ideas[5]["compared"]));
    }
    // Counters are the same on all devices, and only those of the paper are emulated.
    let devices = of("devices");
    assert_eq!(devices.len(), 2 * (4 + 9));
    for record in &devices {
        let variant = record["variant"].as_str().unwrap();
        assert_eq!(record["emulated"], variant.contains(" x "), "{variant}");
        let same = devices.iter().find(|one| one["k"] == record["k"]).unwrap();
        for counter in ["reads", "entries", "compared", "ratio"] {
            assert_eq!(record[counter], same[counter], "{variant} {counter}");
        }
        assert_eq!(record["predicted_ns"].is_number(), record["emulated"] == true);
    }
    assert_eq!(of("synchronous").len(), 5);
    let growth: Vec<f64> = of("growth").iter().map(|record| number(record, "vectors")).collect();
    assert!(growth.len() <= 3 && growth.is_sorted());
    // Three sizes, two k, from the file and in memory.
    assert_eq!(of("ratio").len(), 12);
    let report = std::fs::read_to_string(folder.path().join("report/report.md")).unwrap();
    for part in [
        "are emulated",
        "table 4",
        "figure 3",
        "figures 4 to 8",
        "figures 11",
        "figure 14",
        "table 6",
        "section 6.5",
    ] {
        assert!(report.contains(part), "{part} is missing in {report}");
    }
    // Only the family's indexes are kept, and the exact neighbours.
    let made = names(&folder.path().join("lsh"));
    assert_eq!(made, ["groundtruth-400-25-5.ibin", "lsh-n100", "lsh-n200", "lsh-n400"]);

    // Two vectors are a set as well; an index of something else under the name of one is not taken for it.
    let two = "repro e2lsh base.fbin queries.fbin --vectors 2 -k 1 --tables 2 --gammas 0.5 --repeats 1 --work two --output of-two";
    bathyal(folder.path(), two).good();
    bathyal(folder.path(), "build queries.fbin other/lsh-n400 --family flat --metric l2").good();
    bathyal(folder.path(), "repro e2lsh base.fbin queries.fbin --work other")
        .fails(1, &["family flat", "name another work folder"]);
    bathyal(folder.path(), "repro e2lsh base.fbin queries.fbin --width 0")
        .fails(2, &["--width", "more than 0"]);
    bathyal(folder.path(), "repro e2lsh base.fbin queries.fbin --groundtruth gt.ibin -k 100 --work w")
        .fails(2, &["100 are needed", "--groundtruth"]);
}

#[test]
fn indexes_in_an_object_store_are_reproduced() {
    let folder = tempfile::tempdir().unwrap();
    // Of a smaller one everything would be in the record that is read when an index is opened.
    write_vectors(folder.path(), "base.fbin", 2000, 192, 1);
    write_vectors(folder.path(), "queries.fbin", 20, 192, 2);
    let line = "repro cloud --base base.fbin --query queries.fbin --work cloud --output report --sizes 100,1000 --quick --json";
    let told = bathyal(folder.path(), line).json();
    let records = told["records"].as_array().unwrap();
    let of = |record: &serde_json::Value, key: &str| record[key].as_f64().unwrap();
    let named = |index: &str| -> Vec<&serde_json::Value> {
        records.iter().filter(|record| record["index"] == index && record["set"] == "base").collect()
    };
    // What is in memory is not asked for: groups and lists of vectors take one round, lists of codes two.
    for (index, rounds) in [("cluster", 1.0), ("spann", 1.0), ("coded", 2.0)] {
        assert!(!named(index).is_empty());
        named(index).iter().for_each(|record| assert_eq!(of(record, "rounds"), rounds, "{record}"));
    }
    // With the same list of candidates, the wider the beam the fewer rounds.
    let graph = named("graph");
    for one in &graph {
        for other in graph.iter().filter(|other| other["search_list"] == one["search_list"]) {
            if of(one, "beam_width") < of(other, "beam_width") {
                assert!(of(one, "rounds") >= of(other, "rounds"), "{one} {other}");
            }
        }
    }
    let at = |beam: u32| graph.iter().find(|record| record["beam_width"] == beam).unwrap();
    assert!(of(at(4), "rounds") > of(at(64), "rounds"));
    for record in records {
        assert!((0.0..=1.0).contains(&of(record, "recall")), "{record}");
        assert!(of(record, "reads") >= of(record, "requests"), "{record}");
        if record["set"] != "base" {
            continue;
        }
        assert!(of(record, "requests") > 0.0, "{record}");
        for load in record["loads"].as_array().unwrap() {
            assert_eq!(load["emulated"], true);
            // A store in the same rack answers after a millisecond.
            assert!(of(load, "qps") > 0.0 && of(load, "round_ms") > 0.5, "{load}");
            assert!(of(load, "predicted_qps") > 0.0, "{load}");
        }
    }
    assert!(graph.iter().any(|record| record["loads"].as_array().unwrap().len() == 2));
    let sets: std::collections::BTreeSet<_> =
        records.iter().map(|record| record["set"].as_str().unwrap()).collect();
    assert_eq!(Vec::from_iter(sets), ["base", "base-d48", "base-n100", "base-n1000", "base-u8"]);
    let cached = told["cached"].as_array().unwrap();
    assert_eq!(cached.len(), (3 + 3) * 4 * 2, "{}", told["notes"]);
    for one in cached {
        assert!((0.0..=1.0).contains(&of(one, "hit_rate")), "{one}");
        assert!(of(one, "saved_waves") <= of(one, "waves"), "{one}");
    }
    for answer in ["A1", "A2", "A3"] {
        assert!(told["claims"].as_array().unwrap().iter().any(|claim| claim["answer"] == answer));
    }
    let report = std::fs::read_to_string(folder.path().join("report/report.md")).unwrap();
    for part in [
        "Every speed here is emulated",
        "The paper's answers",
        "figures 3 and 7",
        "figure 8",
        "figure 9",
        "figures 2 and 4",
        "figures 10 to 12",
        "figure 13",
        "table 4",
        "figures 14 and 15",
        "figure 16",
        "figures 17 and 18",
        "figure 19",
        "Equations (1) and (2)",
        "figures 5, 6 and 20 to 25",
    ] {
        assert!(report.contains(part), "{part} is missing in {report}");
    }
    for plot in ["figure-7-c1.svg", "figure-8-bytes.svg", "figure-13-rounds.svg", "figure-21.svg"] {
        assert!(report.contains(plot) && folder.path().join("report").join(plot).exists(), "{plot}");
    }
    let lines = std::fs::read_to_string(folder.path().join("report/records.jsonl")).unwrap();
    assert!(lines.lines().count() > records.len() + cached.len());

    // What is there is of other vectors than those that are asked for.
    bathyal(folder.path(), &format!("{line} --vectors 300"))
        .fails(1, &["over 2000 vectors", "another work folder"]);
    bathyal(folder.path(), "repro cloud --base base.fbin --query a --query b")
        .fails(2, &["--query for each --base"]);
}

#[test]
fn sub_indexes_in_the_memory_of_a_node_are_reproduced() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 4000, 32, 1);
    write_vectors(folder.path(), "queries.fbin", 400, 32, 2);
    let line =
        "repro d-hnsw --base base.fbin --query queries.fbin --work d-hnsw --output report --quick --json";
    let told = bathyal(folder.path(), line).json();
    let of = |record: &serde_json::Value, key: &str| record[key].as_f64().unwrap();
    let records = told["records"].as_array().unwrap();
    let curve = |scheme: &str| -> Vec<&serde_json::Value> {
        records.iter().filter(|row| row["varied"] == "recall" && row["scheme"] == scheme).collect()
    };
    let naive = curve("naive");
    // Top-1 with lists of 1, 10 and 48, and top-10 with two.
    assert_eq!(naive.len(), 5);
    for scheme in ["without-doorbell", "d-hnsw", "ours"] {
        let rows = curve(scheme);
        assert_eq!(rows.len(), naive.len());
        for (row, alone) in rows.iter().zip(&naive) {
            assert_eq!((&row["search_list"], &row["k"]), (&alone["search_list"], &alone["k"]));
            // The same sub-indexes are searched, whoever else is under way.
            assert_eq!(
                (&row["recall"], &row["wanted"]),
                (&alone["recall"], &alone["wanted"]),
                "{row} {alone}"
            );
            assert!(of(alone, "reads") > 5.0 * of(row, "reads"), "{row} {alone}");
        }
    }
    for row in &naive {
        // A round trip a sub-index; few of eighty are found where the query before has left them.
        assert_eq!(row["round_trips"], row["reads"]);
        assert_eq!(of(row, "wanted"), of(row, "probes"));
        let trips = of(row, "round_trips");
        assert!(trips <= of(row, "probes") && trips > 0.7 * of(row, "probes"), "{row}");
    }
    for row in curve("without-doorbell") {
        assert_eq!(row["round_trips"], row["reads"]);
    }
    for row in records {
        assert_eq!(row["emulated"], true);
        assert!((0.0..=1.0).contains(&of(row, "recall")) && of(row, "wall_us") > 0.0, "{row}");
        let parts = of(row, "network_us") + of(row, "meta_us") + of(row, "subindex_us");
        assert!(parts >= of(row, "wall_us") - 1e-6, "{row}");
        if let Some(doorbell) = row["doorbell"].as_f64() {
            assert!(of(row, "reads") <= doorbell * of(row, "round_trips") + 1e-9, "{row}");
        }
    }
    for varied in ["batch", "doorbell", "cache"] {
        assert!(records.iter().filter(|row| row["varied"] == varied).count() > 1, "{varied}");
    }
    let asked = told["asked"].as_array().unwrap();
    assert_eq!(asked.len(), 5 * 3);
    assert!(asked.iter().all(|one| of(one, "alone_p50_us") > 0.0 && of(one, "kept_bytes") > 0.0));
    let grown = told["grown"].as_array().unwrap();
    let vectors: Vec<u64> = grown.iter().map(|row| row["vectors"].as_u64().unwrap()).collect();
    assert_eq!(vectors, [2000, 2500, 3000, 3500, 4000]);
    assert!(grown.iter().all(|row| of(row, "recall") > 0.85), "{grown:?}");
    assert!(grown[1..].iter().all(|row| of(row, "inserts_a_second") > 0.0 && of(row, "insert_p50_us") > 0.0));
    let findings = told["findings"].as_array().unwrap();
    assert!(findings.iter().any(|found| found["what"] == "reads, naive over d-HNSW"), "{findings:?}");
    let report = std::fs::read_to_string(folder.path().join("report/report.md")).unwrap();
    for part in [
        "Every time here is emulated",
        "One compute instance",
        "figure 6",
        "tables 1 and 2",
        "reads of a doorbell",
        "how much is kept",
        "other families",
        "repro d-hnsw --base base.fbin",
    ] {
        assert!(report.contains(part), "{part} is missing in {report}");
    }
    for plot in ["figure-6-base-top1.svg", "figure-6-base-top10.svg"] {
        assert!(report.contains(plot) && folder.path().join("report").join(plot).exists(), "{plot}");
    }
    let lines = std::fs::read_to_string(folder.path().join("report/records.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), records.len() + asked.len() + grown.len() + findings.len());

    // What is there is of other vectors than those that are asked for.
    bathyal(folder.path(), &format!("{line} --vectors 300"))
        .fails(1, &["over 4000 vectors", "another work folder"]);
    bathyal(folder.path(), "repro d-hnsw --base base.fbin --query a --query b")
        .fails(2, &["--query for each --base"]);
    bathyal(folder.path(), "repro d-hnsw --base base.fbin --query queries.fbin --emulate tape")
        .fails(2, &["tape", "connectx6"]);
}

#[test]
fn a_graphics_card_is_reckoned_with() {
    let folder = tempfile::tempdir().unwrap();
    write_vectors(folder.path(), "base.fbin", 3000, 48, 1);
    write_vectors(folder.path(), "queries.fbin", 200, 48, 2);
    let line =
        "repro gustann --base base.fbin --query queries.fbin --work work --output report --quick --json";
    let told = bathyal(folder.path(), line).json();
    assert_eq!(told["predicted"], true);
    let records = told["records"].as_array().unwrap();
    assert_eq!(records.len(), 4 * 3);
    let of = |record: &serde_json::Value, key: &str| record[key].as_f64().unwrap();
    for row in records {
        assert!((0.85..=1.0).contains(&of(row, "recall")) && of(row, "pages") > 0.0, "{row}");
        assert!(
            of(row, "sent_bytes") <= of(row, "record_bytes") && of(row, "slot_bytes") <= 18432.0,
            "{row}"
        );
        let prediction = &row["prediction"];
        assert!(prediction["predicted"] == true && of(prediction, "qps") > 0.0, "{row}");
        let by_disks: Vec<f64> =
            row["by_disks"].as_array().unwrap().iter().map(|one| of(one, "qps")).collect();
        assert!(by_disks.len() == 6 && by_disks.is_sorted(), "{row}");
        // Whatever is sent beside, the link has no more to carry than it needs.
        assert!(of(prediction, "qps") >= of(&row["sending_pages"], "qps") * 0.5, "{row}");
    }
    let rounds = |index: &str| {
        let rows = records.iter().filter(|row| row["index"] == index);
        rows.map(|row| of(row, "rounds")).fold(0.0, f64::max)
    };
    assert!(rounds("cluster") == 1.0 && rounds("graph-beam-1") > 2.0 * rounds("graph"), "{records:?}");
    beginnings_queries_and_loads_of_a_card(&told);
    let report = std::fs::read_to_string(folder.path().join("report/report.md")).unwrap();
    let figures = [11, 12, 14, 15, 16, 17].map(|figure| format!("figure {figure}"));
    for part in ["**Counted**", "**Predicted**", "(figure 13)", "Published figures", "table 1", "FlashANNS"] {
        assert!(report.contains(part), "{part} is missing in {report}");
    }
    assert!(figures.iter().all(|figure| report.contains(figure)), "{report}");
    for plot in ["figure-7", "figure-12", "pivots", "figure-14", "figure-15", "figure-16", "figure-17"] {
        let plot = format!("{plot}-base.svg");
        assert!(report.contains(&plot) && folder.path().join("report").join(&plot).exists(), "{plot}");
    }
    let lines = std::fs::read_to_string(folder.path().join("report/records.jsonl")).unwrap();
    let all = ["records", "begun", "copied", "queried", "loaded"];
    let told = all.map(|key| told[key].as_array().unwrap().len()).iter().sum::<usize>();
    assert_eq!(lines.lines().count(), told);
    bathyal(folder.path(), &format!("{line} --vectors 300")).fails(1, &["another work folder"]);
    bathyal(folder.path(), "repro gustann --base base.fbin --query queries.fbin --link 0")
        .fails(2, &["--link", "above 0"]);
}

/// Of what `repro gustann` told: figures 12 to 14, 16 and 17.
fn beginnings_queries_and_loads_of_a_card(told: &serde_json::Value) {
    let rows = |key: &str| told[key].as_array().unwrap().clone();
    let of = |record: &serde_json::Value, key: &str| record[key].as_f64().unwrap();
    let (records, begun) = (rows("records"), rows("begun"));
    let counted = records.iter().find(|row| row["index"] == "graph-beam-1").unwrap();
    // A walk that begins where searches do reads and finds what they do.
    let walked = begun.iter().find(|row| row["begin"] == "pivots" && row["list"] == counted["search_list"]);
    let walked = walked.unwrap();
    for key in ["recall", "pages"] {
        assert_eq!(of(walked, key), of(counted, key), "{key}: {walked} {counted}");
    }
    for begin in ["entry_point", "nearest", "pivots"] {
        let all: Vec<_> =
            begun.iter().filter(|row| row["begin"] == begin && row["is_figure_12"] == true).collect();
        assert!(all.len() >= 6 && all.is_sorted_by_key(|row| of(row, "pages")), "{all:?}");
        for row in all {
            assert!(of(row, "predicted_in_step_qps") <= of(&row["prediction"], "qps"), "{row}");
            assert!((0.0..=1.0).contains(&of(row, "in_step")), "{row}");
        }
    }
    // All queries read the page of the entry point first, which one of six disks has.
    let shown =
        begun.iter().find(|row| row["begin"] == "entry_point" && row["rounds"][0].is_object()).unwrap();
    let first = &shown["rounds"][0];
    assert!(first["pages"] == 1 && first["most"] == 200 && of(first, "fullest") == 6.0, "{first}");
    let copied = rows("copied");
    assert_eq!(copied.iter().map(|row| row["copies"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 1, 2, 2]);
    assert!(copied.iter().all(|row| row["dim"].as_u64() == Some(48 * row["copies"].as_u64().unwrap())));
    let queried = rows("queried");
    assert_eq!(queried.len(), 5 * 3);
    let held = queried.iter().find(|row| row["kind"] == "held").unwrap();
    assert_eq!(of(held, "nearest"), 0.0, "{held}");
    for loads in rows("loaded").chunk_by(|a, b| a["index"] == b["index"]) {
        // Where the slowest part is busy, sums are rounded one way or the other.
        let rising = loads.windows(2).all(|two| of(&two[0], "qps") <= of(&two[1], "qps") * (1.0 + 1e-9));
        assert!(loads.len() == 9 && rising, "{loads:?}");
        assert!(
            loads.iter().all(|row| row["predicted"] == true && of(row, "qps") <= of(row, "most_qps") * 1.001)
        );
    }
}
