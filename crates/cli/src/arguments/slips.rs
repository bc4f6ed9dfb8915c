//! Hidden options with names that other systems use. Each is refused with a hint at the right option.

use clap::builder::UnknownArgumentValueParser;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

/// Names with the same meaning, and the hint for them.
struct Slip {
    /// Long names; a name of one letter is also a short option.
    names: &'static [&'static str],
    hint: Hint,
}

enum Hint {
    /// The option to use instead.
    Option(&'static str),
    /// A sentence.
    Words(&'static str),
}

const THREADS: Slip = Slip {
    names: &["num-threads", "nthreads", "n-threads", "jobs", "j", "num-workers", "n-jobs"],
    hint: Hint::Option("--threads"),
};
const MEMORY: Slip = Slip {
    names: &["mem", "ram", "max-memory", "memory-limit", "memory-budget"],
    hint: Hint::Option("--memory"),
};
const NEIGHBORS: Slip = Slip {
    names: &["top-k", "topk", "top", "n-neighbors", "num-neighbors", "neighbors", "K"],
    hint: Hint::Option("-k"),
};
const METRIC: Slip = Slip {
    names: &["distance", "distance-metric", "dist-fn", "dist", "space", "similarity"],
    hint: Hint::Option("--metric"),
};

const BUILD: &[Slip] = &[
    THREADS,
    MEMORY,
    METRIC,
    Slip { names: &["index-type", "type", "algorithm", "method"], hint: Hint::Option("--family") },
    Slip { names: &["force", "replace", "f"], hint: Hint::Option("--overwrite") },
    Slip {
        names: &["out", "output", "index", "index-path", "o"],
        hint: Hint::Words("the index is the second argument: bathyal build DATA INDEX"),
    },
    Slip {
        names: &["data", "input", "base", "data-path", "i"],
        hint: Hint::Words("the data is the first argument: bathyal build DATA INDEX"),
    },
    Slip { names: &["R", "M", "m", "degree"], hint: Hint::Option("--max-degree") },
    Slip {
        names: &["L", "ef", "ef-construction", "efconstruction", "efConstruction", "l-build", "build-list"],
        hint: Hint::Option("--search-list"),
    },
    Slip {
        names: &["nlist", "n-lists", "num-partitions"],
        hint: Hint::Words(
            "set the size of groups instead of their number: --group-vectors of cluster, --centroid-share of \
             spann, --partition-vectors of partitioned",
        ),
    },
    Slip {
        names: &["dtype", "quantization", "quantize"],
        hint: Hint::Words(
            "--store-as f16 or i8 stores vectors smaller; --code-bytes sets the length of their codes in \
             memory",
        ),
    },
    Slip { names: &["dry-run", "estimate"], hint: Hint::Option("--plan") },
    Slip { names: &["probes"], hint: Hint::Words("--probes is an option of search") },
    Slip { names: &["recall"], hint: Hint::Words("--recall is an option of search") },
    Slip { names: &["in-flight"], hint: Hint::Words("--in-flight is an option of search") },
    Slip { names: &["beam-width"], hint: Hint::Words("--beam-width is an option of search") },
];

const SEARCH: &[Slip] = &[
    THREADS,
    MEMORY,
    NEIGHBORS,
    Slip {
        names: &["nprobe", "nprobes", "n-probe", "n-probes", "num-probes"],
        hint: Hint::Option("--probes"),
    },
    Slip {
        names: &["metric", "distance", "distance-metric", "space"],
        hint: Hint::Words("the metric belongs to the index: give it once, to bathyal build"),
    },
    Slip { names: &["beamwidth", "W"], hint: Hint::Option("--beam-width") },
    // The former name of the option.
    Slip { names: &["width", "queue-depth", "qd"], hint: Hint::Option("--in-flight") },
    Slip { names: &["gt", "ground-truth", "truth", "groundtruth-file"], hint: Hint::Option("--groundtruth") },
    Slip { names: &["out", "o", "result", "results", "output-file"], hint: Hint::Option("--output") },
];

const EFFORT: &[&str] = &["ef", "ef-search", "efsearch", "efSearch", "search-l", "L", "l-search"];

const GROUNDTRUTH: &[Slip] = &[
    THREADS,
    NEIGHBORS,
    METRIC,
    Slip {
        names: &["out", "output", "gt", "o"],
        hint: Hint::Words(
            "the output is the third argument: bathyal groundtruth DATA QUERIES OUTPUT, such as gt.ibin",
        ),
    },
];

/// Adds the names to a command as hidden options.
fn with_slips(command: Command, slips: &[Slip]) -> Command {
    slips.iter().fold(command, |command, slip| {
        slip.names.iter().fold(command, |command, name| command.arg(refused(name, &slip.hint)))
    })
}

fn refused(name: &'static str, hint: &Hint) -> Arg {
    let parser = match hint {
        Hint::Option(option) => UnknownArgumentValueParser::suggest_arg(*option),
        Hint::Words(words) => UnknownArgumentValueParser::suggest(*words),
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

/// Defines a struct of arguments that adds only slips.
macro_rules! slips {
    ($(#[$doc:meta])* $name:ident, $slips:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                with_slips(command, $slips)
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
    /// Slips that `search` and `bench` share.
    SettingsSlips,
    SEARCH
);
slips!(
    /// Slips of `search` alone.
    SearchSlips,
    &[Slip { names: EFFORT, hint: Hint::Option("--search-list") }]
);
slips!(
    /// Slips of `collection search`.
    CollectionSearchSlips,
    &[
        THREADS,
        MEMORY,
        NEIGHBORS,
        Slip { names: EFFORT, hint: Hint::Option("--search-list") },
        Slip { names: &["where", "predicate", "filters"], hint: Hint::Option("--filter") },
        Slip { names: &["select", "fields", "include"], hint: Hint::Option("--columns") },
        Slip {
            names: &["metric", "distance", "space"],
            hint: Hint::Words(
                "the metrics belong to the collection: give them once, to bathyal collection create",
            ),
        },
    ]
);
slips!(
    /// Slips of `bench` alone.
    BenchSlips,
    &[Slip { names: EFFORT, hint: Hint::Option("--search-lists") }]
);
slips!(
    /// Slips of `groundtruth`.
    GroundtruthSlips,
    GROUNDTRUTH
);
