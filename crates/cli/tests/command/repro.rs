//! Reproductions of the papers' figures, on tiny data.

use crate::workshop::{bathyal, copy, names};

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
