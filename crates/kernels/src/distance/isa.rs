//! The instruction sets (ISAs) that have kernels, and their detection.

use super::kernel::Table;
use super::scalar;
use crate::element::Element;
use crate::metric::Metric;
use std::fmt;
use std::sync::OnceLock;

/// Environment variable that names the best instruction set to use. The golden counters compare two
/// instruction sets on one CPU with it.
const LIMIT_VARIABLE: &str = "BATHYAL_ISA";

/// An instruction set with kernels of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain loops, for every CPU.
    Scalar,
    /// AVX2 with FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX-512 with VNNI, which multiplies and sums bytes in one instruction.
    Avx512Vnni,
    /// NEON of 64-bit Arm, with dot products of bytes if the CPU has them.
    Neon,
}

impl Isa {
    /// All ISAs; for each architecture, the best is last.
    pub const ALL: [Isa; 5] = [Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Avx512Vnni, Isa::Neon];

    /// Returns true if this CPU has the ISA.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => has_avx2(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => has_avx512(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => has_avx512() && std::is_x86_feature_detected!("avx512vnni"),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            _ => false,
        }
    }

    /// Returns the best ISA of this CPU, but none better than the one in the environment variable
    /// `BATHYAL_ISA` ([`Isa::name`]). The result is cached. An unknown name in the variable is ignored.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Isa::best_up_to(std::env::var(LIMIT_VARIABLE).ok().as_deref()))
    }

    fn best_up_to(name: Option<&str>) -> Isa {
        let limit = Isa::ALL.into_iter().find(|isa| Some(isa.name()) == name);
        let is_allowed = |isa: &Isa| isa.is_available() && limit.is_none_or(|limit| *isa <= limit);
        Isa::ALL.into_iter().rev().find(is_allowed).unwrap_or(Isa::Scalar)
    }

    /// Returns the kernels of this ISA, which must be available.
    pub(super) fn table(self, element: Element, metric: Metric) -> Table {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => super::avx2::table(element, metric),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => super::avx512::table(element, metric),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => super::vnni::table(element, metric),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => super::neon::table(element, metric),
            _ => scalar::table(element, metric),
        }
    }

    /// Returns the kernels of this ISA, which must be available, for f32 queries.
    pub(super) fn table_of_floats(self, rows: Element, metric: Metric) -> Table {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => super::avx2::table_of_floats(rows, metric),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => super::avx512::table_of_floats(rows, metric),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => super::vnni::table_of_floats(rows, metric),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => super::neon::table_of_floats(rows, metric),
            _ => scalar::table_of_floats(rows, metric),
        }
    }

    /// Returns the lower-case name: `scalar`, `avx2`, `avx512`, `avx512vnni`, `neon`.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Avx512Vnni => "avx512vnni",
            Isa::Neon => "neon",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    std::is_x86_feature_detected!("avx2")
        && std::is_x86_feature_detected!("fma")
        && std::is_x86_feature_detected!("f16c")
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    has_avx2()
        && std::is_x86_feature_detected!("avx512f")
        && std::is_x86_feature_detected!("avx512bw")
        && std::is_x86_feature_detected!("avx512dq")
        && std::is_x86_feature_detected!("avx512vl")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_isa_is_no_better_than_the_named_limit() {
        let best = Isa::best_up_to(None);
        assert!(best.is_available());
        for isa in Isa::ALL {
            let limited = Isa::best_up_to(Some(isa.name()));
            assert!(limited.is_available() && limited <= isa, "{isa}: {limited}");
            assert!(!isa.is_available() || limited == isa, "{isa}: {limited}");
        }
        assert_eq!(Isa::best_up_to(Some("quantum")), best);
    }
}
