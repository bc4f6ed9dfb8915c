//! Other libraries that the benchmark compares with ours. It calls their C symbols directly, which has the
//! least overhead.

use bathyal_kernels::{Element, Metric};
use simsimd as _;

#[cfg(not(numkong))]
pub const NAMES: [&str; 1] = ["simsimd"];
#[cfg(numkong)]
pub const NAMES: [&str; 2] = ["simsimd", "numkong"];

/// A distance function of another library. It writes its result as 32 or 64 bits.
#[derive(Clone, Copy)]
pub struct Peer {
    /// Components in a unit of the length argument.
    unit: usize,
    function: unsafe extern "C" fn(*const u8, *const u8, u64, *mut f64),
}

impl Peer {
    pub fn between(self, a: &[u8], b: &[u8], dim: usize) -> f32 {
        let mut result = 0.0;
        // SAFETY: both slices hold `dim` components, and a result has at most 64 bits.
        unsafe { (self.function)(a.as_ptr(), b.as_ptr(), (dim / self.unit) as u64, &mut result) };
        result as f32
    }
}

macro_rules! symbols {
    ($($name:ident)*) => {
        unsafe extern "C" {
            $(fn $name(a: *const u8, b: *const u8, dim: u64, result: *mut f64);)*
        }
    };
}

symbols! {
    simsimd_l2sq_f32 simsimd_dot_f32 simsimd_cos_f32
    simsimd_l2sq_f16 simsimd_dot_f16 simsimd_cos_f16
    simsimd_l2sq_u8 simsimd_dot_u8 simsimd_cos_u8
    simsimd_l2sq_i8 simsimd_dot_i8 simsimd_cos_i8
    simsimd_l2sq_bf16 simsimd_dot_bf16 simsimd_cos_bf16
    simsimd_hamming_b8
}

#[cfg(not(numkong))]
pub fn all(element: Element, metric: Metric) -> [Peer; 1] {
    [simsimd(element, metric)]
}

#[cfg(numkong)]
pub fn all(element: Element, metric: Metric) -> [Peer; 2] {
    [simsimd(element, metric), numkong::peer(element, metric)]
}

fn simsimd(element: Element, metric: Metric) -> Peer {
    let functions: [unsafe extern "C" fn(*const u8, *const u8, u64, *mut f64); 3] = match element {
        Element::F32 => [simsimd_l2sq_f32, simsimd_dot_f32, simsimd_cos_f32],
        Element::F16 => [simsimd_l2sq_f16, simsimd_dot_f16, simsimd_cos_f16],
        Element::U8 => [simsimd_l2sq_u8, simsimd_dot_u8, simsimd_cos_u8],
        Element::I8 => [simsimd_l2sq_i8, simsimd_dot_i8, simsimd_cos_i8],
        Element::Bf16 => [simsimd_l2sq_bf16, simsimd_dot_bf16, simsimd_cos_bf16],
        // SimSIMD has no other distance of bits.
        Element::B1 => [simsimd_hamming_b8; 3],
    };
    let unit = if element == Element::B1 { 8 } else { 1 };
    Peer { unit, function: functions[metric as usize] }
}

#[cfg(numkong)]
mod numkong {
    use super::Peer;
    use ::numkong as _;
    use bathyal_kernels::{Element, Metric};

    symbols! {
        nk_sqeuclidean_f32 nk_dot_f32 nk_angular_f32
        nk_sqeuclidean_f16 nk_dot_f16 nk_angular_f16
        nk_sqeuclidean_u8 nk_dot_u8 nk_angular_u8
        nk_sqeuclidean_i8 nk_dot_i8 nk_angular_i8
        nk_sqeuclidean_bf16 nk_dot_bf16 nk_angular_bf16
    }

    pub fn peer(element: Element, metric: Metric) -> Peer {
        let functions: [unsafe extern "C" fn(*const u8, *const u8, u64, *mut f64); 3] = match element {
            Element::F32 => [nk_sqeuclidean_f32, nk_dot_f32, nk_angular_f32],
            Element::F16 => [nk_sqeuclidean_f16, nk_dot_f16, nk_angular_f16],
            Element::U8 => [nk_sqeuclidean_u8, nk_dot_u8, nk_angular_u8],
            Element::I8 => [nk_sqeuclidean_i8, nk_dot_i8, nk_angular_i8],
            Element::Bf16 => [nk_sqeuclidean_bf16, nk_dot_bf16, nk_angular_bf16],
            Element::B1 => unreachable!("the benchmark skips bits with NumKong"),
        };
        Peer { unit: 1, function: functions[metric as usize] }
    }
}
