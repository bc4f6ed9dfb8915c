//! What people type who come from other systems: refused, each with the word that is right here.

use clap::builder::UnknownArgumentValueParser;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// Names of one meaning, and the answer to them.
struct Slip {
    /// Long names; those of one letter are short ones, too.
    names: &'static [&'static str],
    answer: Answer,
}

enum Answer {
    /// The option that is meant.
    Option(&'static str),
    /// A sentence.
    Words(&'static str),
}

const THREADS: Slip = Slip {
    names: &["num-threads", "nthreads", "n-threads", "jobs", "j", "num-workers", "n-jobs"],
    answer: Answer::Option("--threads"),
};
const MEMORY: Slip = Slip {
    names: &["mem", "ram", "max-memory", "memory-limit", "memory-budget"],
    answer: Answer::Option("--memory"),
};
const NEIGHBORS: Slip = Slip {
    names: &["top-k", "topk", "top", "n-neighbors", "num-neighbors", "neighbors", "K"],
    answer: Answer::Option("-k"),
};
const METRIC: Slip = Slip {
    names: &["distance", "distance-metric", "dist-fn", "dist", "space", "similarity"],
    answer: Answer::Option("--metric"),
};

const BUILD: &[Slip] = &[
    THREADS,
    MEMORY,
    METRIC,
    Slip { names: &["index-type", "type", "algorithm", "method"], answer: Answer::Option("--family") },
    Slip { names: &["force", "replace", "f"], answer: Answer::Option("--overwrite") },
    Slip {
        names: &["out", "output", "index", "index-path", "o"],
        answer: Answer::Words("the index is the second argument: bathyal build DATA INDEX"),
    },
    Slip {
        names: &["data", "input", "base", "data-path", "i"],
        answer: Answer::Words("the data is the first argument: bathyal build DATA INDEX"),
    },
    Slip { names: &["R", "M", "m", "degree"], answer: Answer::Option("--max-degree") },
    Slip {
        names: &["L", "ef", "ef-construction", "efconstruction", "efConstruction", "l-build", "build-list"],
        answer: Answer::Option("--search-list"),
    },
    Slip {
        names: &["nlist", "n-lists", "num-partitions"],
        answer: Answer::Words(
            "Bathyal is told the size of groups, not their number: --group-vectors of a cluster index, --centroid-share of \
             spann, --partition-vectors of partitioned",
        ),
    },
    Slip {
        names: &["dtype", "quantization", "quantize"],
        answer: Answer::Words(
            "--store-as f16 or i8 stores vectors smaller; --code-bytes says how long their codes in memory are",
        ),
    },
    Slip { names: &["dry-run", "estimate"], answer: Answer::Option("--plan") },
];

const SEARCH: &[Slip] = &[
    THREADS,
    MEMORY,
    NEIGHBORS,
    Slip {
        names: &["nprobe", "nprobes", "n-probe", "n-probes", "num-probes"],
        answer: Answer::Option("--probes"),
    },
    Slip {
        names: &["metric", "distance", "distance-metric", "space"],
        answer: Answer::Words("an index knows its metric: it is given once, to bathyal build"),
    },
    Slip { names: &["beamwidth", "W"], answer: Answer::Option("--beam-width") },
    // What the library called it once.
    Slip { names: &["width", "queue-depth", "qd"], answer: Answer::Option("--in-flight") },
    Slip {
        names: &["gt", "ground-truth", "truth", "groundtruth-file"],
        answer: Answer::Option("--groundtruth"),
    },
    Slip { names: &["out", "o", "result", "results", "output-file"], answer: Answer::Option("--output") },
];

const EFFORT: &[&str] = &["ef", "ef-search", "efsearch", "efSearch", "search-l", "L", "l-search"];

const GROUNDTRUTH: &[Slip] = &[
    THREADS,
    NEIGHBORS,
    METRIC,
    Slip {
        names: &["out", "output", "gt", "o"],
        answer: Answer::Words(
            "the output is the third argument: bathyal groundtruth DATA QUERIES OUTPUT, such as gt.ibin",
        ),
    },
];

/// Adds the names to a command, unseen in its help.
fn taught(command: Command, slips: &[Slip]) -> Command {
    slips.iter().fold(command, |command, slip| {
        slip.names.iter().fold(command, |command, name| command.arg(refused(name, &slip.answer)))
    })
}

fn refused(name: &'static str, answer: &Answer) -> Arg {
    let parser = match answer {
        Answer::Option(option) => UnknownArgumentValueParser::suggest_arg(*option),
        Answer::Words(words) => UnknownArgumentValueParser::suggest(*words),
    };
    // A switch in one system takes a value in another.
    let arg = Arg::new(format!("slip-{name}"))
        .long(name)
        .value_name("VALUE")
        .hide(true)
        .num_args(0..=1)
        .default_missing_value("")
        .value_parser(parser);
    match name.chars().collect::<Vec<_>>().as_slice() {
        [letter] => arg.short(*letter),
        _ => arg,
    }
}

/// Makes an argument group of nothing but slips.
macro_rules! slips {
    ($(#[$doc:meta])* $name:ident, $slips:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                taught(command, $slips)
            }

            fn augment_args_for_update(command: Command) -> Command {
                $name::augment_args(command)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(_: &ArgMatches) -> Result<Self, Error> {
                Ok($name)
            }

            fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
                Ok(())
            }
        }
    };
}

slips!(
    /// Slips of `build`.
    BuildSlips,
    BUILD
);
slips!(
    /// Slips that `search` and `bench` have in common.
    SettingsSlips,
    SEARCH
);
slips!(
    /// Slips of `search` alone.
    SearchSlips,
    &[Slip { names: EFFORT, answer: Answer::Option("--search-list") }]
);
slips!(
    /// Slips of `collection search`.
    CollectionSearchSlips,
    &[
        THREADS,
        MEMORY,
        NEIGHBORS,
        Slip { names: EFFORT, answer: Answer::Option("--search-list") },
        Slip { names: &["where", "predicate", "filters"], answer: Answer::Option("--filter") },
        Slip { names: &["select", "fields", "include"], answer: Answer::Option("--columns") },
        Slip {
            names: &["metric", "distance", "space"],
            answer: Answer::Words("a collection knows its metrics: they are given once, to bathyal collection create"),
        },
    ]
);
slips!(
    /// Slips of `bench` alone.
    BenchSlips,
    &[Slip { names: EFFORT, answer: Answer::Option("--search-lists") }]
);
slips!(
    /// Slips of `groundtruth`.
    GroundtruthSlips,
    GROUNDTRUTH
);
