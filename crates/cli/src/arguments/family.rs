//! The option `--family` and the options of all families, generated from the registry of families.

use bathyal_index::families::{self, FAMILIES};
use bathyal_index::{FamilyOptions, GivenOptions};
use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// Heading of the options of families in the help.
const HEADING: &str = "Options of families";

/// The family to build, with its options.
#[derive(Clone, Debug)]
pub struct FamilyArguments {
    /// The options as a build takes them.
    pub options: FamilyOptions,
    /// The options that were given, by name.
    pub given: GivenOptions,
    /// True if the family was named.
    pub is_named: bool,
}

/// Returns the names of the options of all families, each once, in the order of the registry.
fn names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Vec::new();
    for option in FAMILIES.iter().flat_map(|family| family.options) {
        if !names.contains(&option.name) {
            names.push(option.name);
        }
    }
    names
}

/// Returns the help of the option `name`: the text of each family that has it, families with equal texts
/// together.
fn help(name: &str) -> String {
    let of_families = FAMILIES.iter().filter_map(|family| {
        let option = family.options.iter().find(|option| option.name == name)?;
        Some((family.name, option.help))
    });
    let mut texts: Vec<(String, &str)> = Vec::new();
    for (family, help) in of_families {
        match texts.iter_mut().find(|(_, other)| *other == help) {
            Some((families, _)) => families.push_str(&format!(", {family}")),
            None => texts.push((family.to_owned(), help)),
        }
    }
    let texts: Vec<String> = texts.iter().map(|(families, help)| format!("{families}: {help}")).collect();
    texts.join(". ")
}

/// Converts a value to JSON: to a number if it is one, else to text.
fn value(text: &str) -> serde_json::Value {
    serde_json::from_str::<serde_json::Number>(text).map_or_else(|_| text.into(), serde_json::Value::Number)
}

impl Args for FamilyArguments {
    fn augment_args(command: Command) -> Command {
        let abouts: Vec<String> =
            FAMILIES.iter().map(|family| format!("{} ({})", family.name, family.about)).collect();
        let family = Arg::new("family")
            .long("family")
            .value_name("FAMILY")
            .value_parser(PossibleValuesParser::new(FAMILIES.iter().map(|family| family.name)))
            .hide_possible_values(true)
            .help(format!("Family of the index: {} [default: {}]", abouts.join("; "), FAMILIES[0].name));
        names().into_iter().fold(command.arg(family), |command, name| {
            let value_name =
                FAMILIES.iter().flat_map(|family| family.options).find(|option| option.name == name);
            command.arg(
                Arg::new(name)
                    .long(name.replace('_', "-"))
                    .value_name(value_name.map_or("VALUE", |option| option.value))
                    .action(ArgAction::Set)
                    .help_heading(HEADING)
                    .help(help(name)),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        FamilyArguments::augment_args(command)
    }
}

impl FromArgMatches for FamilyArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let named = matches.get_one::<String>("family");
        let family = named.map_or(FAMILIES[0].name, String::as_str);
        let given: GivenOptions = names()
            .into_iter()
            .filter_map(|name| Some((name.to_owned(), value(matches.get_one::<String>(name)?))))
            .collect();
        let options = families::options(family, &given)
            .map_err(|error| Error::raw(ErrorKind::ValueValidation, error.to_string()))?;
        Ok(FamilyArguments { options, given, is_named: named.is_some() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = FamilyArguments::from_arg_matches(matches)?;
        Ok(())
    }
}
