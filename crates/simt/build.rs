//! Compiles the kernels of `crates/gpu` for this machine's processor.

fn main() {
    let kernels = "../gpu/kernels";
    for path in ["cpp", kernels] {
        println!("cargo:rerun-if-changed={path}");
    }
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        // A product and a sum are two roundings, as on the card.
        .flag("-ffp-contract=off")
        .opt_level(2)
        .define("SIMT", None)
        .include("cpp")
        .include(kernels)
        .files(["cpp/simt.cpp", "cpp/kernels.cpp"])
        .compile("simt");
}
