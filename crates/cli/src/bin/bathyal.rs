//! The command `bathyal`.

fn main() {
    std::process::exit(bathyal_cli::main(std::env::args_os()));
}
