//! Indexes that are striped over several memory nodes. They give the same answers and counters as in a
//! folder, and errors name the node.

#[path = "all/clustered/mod.rs"]
mod clustered;

use bathyal_index::families::partitioned::PartitionedOptions;
use bathyal_index::format::manifest::{FileEntry, Manifest};
use bathyal_index::open::WrapTier;
use bathyal_index::{
    BuildOptions, ClusterOptions, CopyOptions, Effort, FamilyOptions, GraphOptions, Index, IndexError,
    OpenOptions, SearchOptions, SearchResult, StoreOptions, StripeConversionOptions, StripeOptions,
    TierChoice, build, convert_stripes, copy, find, holding, inspect_in, verify, verify_in,
};
use bathyal_kernels::Element;
use bathyal_remote::{Credentials, Identity, Node, NodeOptions};
use bathyal_tier::backend::sim::{FaultRates, SimOptions, SimTier};
use bathyal_tier::{Control, Tier};
use bathyal_vectors::VectorFile;
use bathyal_vectors::progress::Silent;
use clustered::vectors;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const DIM: usize = 96;

/// Memory nodes, and a folder of the client.
struct Nodes {
    nodes: Vec<Node>,
    folder: TempDir,
}

impl Nodes {
    fn new(capacities: &[u64]) -> Nodes {
        let start = |capacity_bytes: &u64| {
            let options = NodeOptions { listen: ([127, 0, 0, 1], 0).into(), capacity_bytes: *capacity_bytes };
            Node::start(&options, Identity::new().unwrap()).unwrap()
        };
        Nodes { nodes: capacities.iter().map(start).collect(), folder: tempfile::tempdir().unwrap() }
    }

    fn hosts(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address().to_string()).collect()
    }

    fn address(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("remote://{}/{name}", self.hosts().join(",")))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn store(&self) -> StoreOptions {
        let joined = |field: fn(&Credentials) -> &String| {
            self.nodes.iter().map(|node| field(node.credentials()).as_str()).collect::<Vec<_>>().join(",")
        };
        let (token, peer_key) = (joined(|own| &own.token), joined(|own| &own.peer_key));
        let scratch = self.path("scratch");
        let options = [
            ("token", token.as_str()),
            ("peer_key", peer_key.as_str()),
            ("scratch", scratch.to_str().unwrap()),
            ("transport", "tcp"),
            ("timeout", "2"),
        ];
        StoreOptions::new(options).unwrap()
    }

    fn open(&self, name: &str) -> Result<Index, IndexError> {
        Index::open(self.address(name), &OpenOptions { store: self.store(), ..OpenOptions::default() })
    }

    fn build(
        &self,
        name: &str,
        data: &VectorFile,
        family: impl Into<FamilyOptions>,
    ) -> Result<(), IndexError> {
        let options = BuildOptions { store: self.store(), threads: 1, ..BuildOptions::of(family) };
        build(data, &self.address(name), &options, &Silent).map(drop)
    }
}

fn data() -> VectorFile {
    vectors(Element::F32, 6000, DIM, 1)
}

fn families() -> [(&'static str, FamilyOptions); 3] {
    [
        ("cluster", ClusterOptions::default().into()),
        ("graph", GraphOptions { max_degree: 16, search_list: 30, ..GraphOptions::default() }.into()),
        (
            "partitioned",
            PartitionedOptions { partition_vectors: 300, ..PartitionedOptions::default() }.into(),
        ),
    ]
}

fn search(index: &Index) -> Result<SearchResult, IndexError> {
    let options = SearchOptions { effort: Effort::SearchList(40), threads: 1, ..SearchOptions::default() };
    index.search(&vectors(Element::F32, 30, DIM, 2), &options, Control::default())
}

/// Returns the files of an index without their stripes.
fn files(manifest: Manifest) -> Vec<FileEntry> {
    manifest.files.into_iter().map(|file| FileEntry { stripe: None, ..file }).collect()
}

#[test]
fn an_index_on_several_nodes_equals_one_in_a_folder() {
    let data = data();
    let alone = Nodes::new(&[64 << 20]);
    for count in [2, 3] {
        let nodes = Nodes::new(&vec![64 << 20; count]);
        for (name, family) in families() {
            let what = format!("{name} over {count}");
            let local = nodes.path(name);
            build(&data, &local, &BuildOptions { threads: 1, ..BuildOptions::of(family.clone()) }, &Silent)
                .unwrap();
            // Searches of cluster indexes read single vectors on nodes, as they do in DRAM.
            let tier = if name == "cluster" { TierChoice::Dram } else { TierChoice::File };
            let own = OpenOptions { tier, ..OpenOptions::default() };
            let expected = search(&Index::open(&local, &own).unwrap()).unwrap();
            for nodes in [&nodes, &alone] {
                let to = CopyOptions { to: nodes.store(), overwrite: true, ..CopyOptions::default() };
                copy(&local, nodes.address(name), &to, &Silent).unwrap();
            }
            let on_one = search(&alone.open(name).unwrap()).unwrap();
            let built = format!("{name}-built");
            nodes.build(&built, &data, family).unwrap();
            for there in [name, &built] {
                let index = nodes.open(there).unwrap();
                let found = search(&index).unwrap();
                assert_eq!(
                    (&found.ids, &found.distances),
                    (&expected.ids, &expected.distances),
                    "{what}: {there}"
                );
                // Files are read in whole sectors, so the counters are compared with those of one node.
                assert_eq!(found.per_query, on_one.per_query, "{what}: {there}");
                let counted = |result: &SearchResult| {
                    (result.totals.hops, result.totals.reads, result.totals.full_distances)
                };
                assert_eq!(counted(&found), counted(&expected), "{what}: {there}");
                let parts = index.stats().parts;
                assert!(parts.len() == count && parts.iter().all(|part| part.reads > 0), "{what}: {parts:?}");
                let hosts = nodes.hosts();
                assert!(parts.iter().zip(&hosts).all(|(part, host)| part.path.contains(host)), "{parts:?}");
                let found = find(nodes.address(there), &[], &nodes.store()).unwrap();
                let report = verify_in(found.as_ref(), &Silent).unwrap();
                assert!(report.sound && report.vectors == 6000, "{what}: {report:?}");
                let described = inspect_in(found.as_ref(), &Silent).unwrap();
                assert!(described.parts.len() >= count, "{what}: {:?}", described.parts);
                assert_eq!(files(described.manifest), files(Manifest::read(&local).unwrap()), "{what}");
            }
            // Copy the index back to one folder.
            let (back, from) = (nodes.path(&format!("{name}-back")), nodes.store());
            copy(nodes.address(name), &back, &CopyOptions { from, ..CopyOptions::default() }, &Silent)
                .unwrap();
            assert!(verify(&back, &Silent).unwrap().sound, "{what}");
            assert_eq!(
                files(Manifest::read(&back).unwrap()),
                files(Manifest::read(&local).unwrap()),
                "{what}"
            );
        }
    }
}

#[test]
fn parts_on_nodes_equal_those_on_disks() {
    let nodes = Nodes::new(&[64 << 20, 64 << 20]);
    let (local, disks) = (nodes.path("local"), ["a", "b"].map(|name| nodes.path(name)));
    disks.iter().for_each(|disk| std::fs::create_dir(disk).unwrap());
    let own = BuildOptions { threads: 1, ..BuildOptions::of(ClusterOptions::default()) };
    build(&data(), &local, &BuildOptions { stripe: Some(StripeOptions::over(&disks)), ..own }, &Silent)
        .unwrap();
    let to = CopyOptions { to: nodes.store(), ..CopyOptions::default() };
    copy(&local, nodes.address("index"), &to, &Silent).unwrap();
    let there = Manifest::load(find(nodes.address("index"), &[], &nodes.store()).unwrap().as_ref()).unwrap();
    let mut wanted = Manifest::read(&local).unwrap();
    for (wanted, found) in wanted.files.iter_mut().zip(&there.files) {
        if let (Some(wanted), Some(found)) = (&mut wanted.stripe, &found.stripe) {
            assert_ne!(wanted.key, found.key, "each copy has a key of its own");
            wanted.key.clone_from(&found.key);
        }
    }
    assert_eq!(wanted, there, "the manifests differ in the key alone");
    assert!(there.is_striped());
}

#[test]
fn an_index_larger_than_a_node_fits_on_three() {
    // The vectors alone are 5.4 MB; a file of some megabytes takes whole pages of 2 MiB.
    let large = vectors(Element::F32, 14_000, DIM, 1);
    let three = Nodes::new(&[5 << 20; 3]);
    three.build("index", &large, ClusterOptions::default()).unwrap();
    assert_eq!(three.open("index").unwrap().len(), 14_000);
    let refused = |nodes: &Nodes, host: usize| {
        let text = nodes.build("index", &large, ClusterOptions::default()).unwrap_err().to_string();
        let names_host = text.contains(&nodes.hosts()[host]) && text.contains("--capacity");
        assert!(names_host && nodes.open("index").is_err(), "{text}");
        assert!(nodes.nodes.iter().all(|node| node.status().indexes.is_empty()), "an index is left");
    };
    refused(&Nodes::new(&[5 << 20]), 0);
    refused(&Nodes::new(&[64 << 20, 1 << 20]), 1);
}

#[test]
fn single_vectors_are_read_if_memory_allows_and_are_checked() {
    let nodes = Nodes::new(&[64 << 20]);
    nodes.build("index", &data(), ClusterOptions::default()).unwrap();
    let open = |options: OpenOptions| {
        let store = nodes.store();
        Index::open(nodes.address("index"), &OpenOptions { store, ..options }).unwrap()
    };
    let alone = open(OpenOptions::default());
    let found = search(&alone).unwrap();
    let vector_bytes = 4 * DIM as u64;
    assert!(found.totals.reads > 0 && found.totals.bytes == found.totals.reads * vector_bytes);
    // Eight bytes for each place, including the free places of groups that are not full.
    let places = alone.memory_split().ids;
    assert!((8 * 6000..9 * 6000).contains(&places), "{places}");
    let (mut of_vectors, mut of_pages) = (0, 0);
    for step in 0..40 {
        let budget = alone.memory_split().fixed() + step * (256 << 10);
        let Ok(index) = Index::open(
            nodes.address("index"),
            &OpenOptions { memory_bytes: Some(budget), store: nodes.store(), ..OpenOptions::default() },
        ) else {
            continue;
        };
        let (split, found) = (*index.memory_split(), search(&index).unwrap());
        assert!(split.fixed() <= budget, "{budget}: {split:?}");
        match split.ids {
            _ if split.pages > 0 => break,
            0 => of_pages += u64::from(found.totals.bytes > found.totals.reads * vector_bytes),
            _ => of_vectors += u64::from(found.totals.bytes == found.totals.reads * vector_bytes),
        }
    }
    assert!(of_pages > 0 && of_vectors > 0, "{of_pages} by pages, {of_vectors} by vectors");
    for (rates, what) in [
        (FaultRates { flip: 1.0, ..FaultRates::NONE }, "a flipped bit"),
        (FaultRates { misdirect: 1.0, ..FaultRates::NONE }, "bytes of another place"),
        (FaultRates { short: 1.0, ..FaultRates::NONE }, "fewer bytes"),
    ] {
        let wrap: WrapTier = Arc::new(move |tier| {
            let options = SimOptions { rates, ..SimOptions::default() };
            Ok(Arc::new(SimTier::over(tier, options)) as Arc<dyn Tier>)
        });
        let error = search(&open(OpenOptions { wrap: Some(wrap), ..OpenOptions::default() })).unwrap_err();
        assert!(matches!(error, IndexError::Damaged { .. } | IndexError::Read { .. }), "{what}: {error}");
    }
}

#[test]
fn a_node_that_ends_during_a_search_is_named() {
    let mut nodes = Nodes::new(&[64 << 20, 64 << 20]);
    nodes.build("index", &data(), ClusterOptions::default()).unwrap();
    let index = nodes.open("index").unwrap();
    search(&index).unwrap();
    let host = nodes.hosts()[1].clone();
    let (address, store) = (nodes.address("index"), nodes.store());
    drop(nodes.nodes.pop());
    let error = search(&index).unwrap_err();
    assert!(
        matches!(&error, IndexError::Read { file, .. } if file.to_string_lossy().contains(&host)),
        "{error}"
    );
    let opened = Index::open(&address, &OpenOptions { store, ..OpenOptions::default() });
    let error = opened.map(drop).unwrap_err().to_string();
    assert!(error.contains(&host) && error.contains("does not answer"), "{error}");
}

#[test]
fn options_that_nodes_do_not_support_are_refused_with_advice() {
    let nodes = Nodes::new(&[64 << 20, 64 << 20]);
    let address = nodes.address("index");
    let folders = [nodes.path("a"), nodes.path("b")];
    let stripe = Some(StripeOptions::over(&folders));
    let own = BuildOptions { store: nodes.store(), stripe, ..BuildOptions::of(ClusterOptions::default()) };
    let error = build(&data(), &address, &own, &Silent).map(drop).unwrap_err().to_string();
    assert!(error.contains("leave the stripe out") && error.contains("remote://"), "{error}");
    let error = find(&address, &folders, &nodes.store()).map(drop).unwrap_err().to_string();
    assert!(error.contains("leave the stripe out"), "{error}");
    let held = holding(&address, &nodes.store()).unwrap();
    let error = held.store().begin("index", bathyal_store::Replace::Never).map(drop).unwrap_err().to_string();
    assert!(error.contains("bathyal copy") && error.contains("remote://"), "{error}");
    let three = StoreOptions::new([("token", "a,b,c")]).unwrap();
    let error = find(&address, &[], &three).map(drop).unwrap_err().to_string();
    assert!(error.contains("3 values for 2 nodes"), "{error}");
    let missing = StripeConversionOptions::default();
    let error = convert_stripes(Path::new("nowhere"), &address, &missing, &Silent).map(drop).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn partitions_on_several_nodes_are_searched_and_refuse_inserts() {
    let (nodes, alone) = (Nodes::new(&[64 << 20, 64 << 20]), Nodes::new(&[64 << 20]));
    let family =
        || PartitionedOptions { partition_vectors: 300, growth: 0.2, ..PartitionedOptions::default() };
    let data = data();
    let [found, expected] = [&nodes, &alone].map(|nodes| {
        nodes.build("index", &data, family()).unwrap();
        search(&nodes.open("index").unwrap()).unwrap()
    });
    assert_eq!((found.ids, found.distances), (expected.ids, expected.distances));
    let index = nodes.open("index").unwrap();
    let error = index.insert(&vectors(Element::F32, 5, DIM, 3)).map(drop).unwrap_err().to_string();
    assert!(error.contains("bathyal copy") && error.contains("remote://"), "{error}");
}
