//! What a query of coupled lists asks for by their shape alone, before they are built: whether codes within lists, and a
//! second round for the vectors of the best, are worth it on a device.

use super::cost::ListCost;
use crate::cost::demand::moved_bytes;
use serde::{Deserialize, Serialize};

/// Bytes of an id or a place.
const ID_BYTES: f64 = 4.0;

/// Coupled lists as a query meets them, in the mean.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CoupledShape {
    /// Lists searched.
    pub lists: f64,
    /// Vectors of a list.
    pub list_vectors: f64,
    /// Bytes of a vector.
    pub vector_bytes: u32,
    /// Bytes of a code, where lists hold codes; else they hold copies.
    pub code_bytes: Option<u32>,
    /// Candidates whose vectors are read, where lists hold codes.
    pub candidates: f64,
    /// Share of the candidates that are a read of their own: near ones lie together, so that some share a block.
    pub apart: f64,
    /// What all reads begin and end at multiples of: 1 where they may begin anywhere.
    pub alignment: u32,
}

impl CoupledShape {
    /// Bytes of a list without what alignment adds.
    pub fn list_bytes(&self) -> f64 {
        self.list_vectors.max(0.0) * (f64::from(self.code_bytes.unwrap_or(self.vector_bytes)) + ID_BYTES)
    }

    /// Vectors of the whole set, of which each is in `replicas` lists, by the bytes of one: the size of the index, but for
    /// centroids.
    pub fn amplification(&self, replicas: f64) -> f64 {
        let vector = f64::from(self.vector_bytes.max(1));
        match self.code_bytes {
            Some(code) => (vector + ID_BYTES + replicas * (f64::from(code) + ID_BYTES)) / vector,
            None => replicas * (vector + ID_BYTES) / vector,
        }
    }

    /// The cost of a query that compares `centroids` and computes for `compute_ns`, codes included.
    pub fn cost(&self, centroids: f64, compute_ns: f64) -> ListCost {
        let unit = f64::from(self.alignment.max(1));
        // A list begins where it touches no block more than it must.
        let of_lists = self.lists * (self.list_bytes() / unit).ceil() * unit;
        let candidates = if self.code_bytes.is_some() { self.candidates.max(0.0) } else { 0.0 };
        let small_reads = candidates * self.apart.clamp(0.0, 1.0);
        let row_bytes = self.vector_bytes + ID_BYTES as u32;
        let each = moved_bytes(f64::from(row_bytes), row_bytes, self.alignment);
        // What shares a block costs its own bytes only where these are asked for alone.
        let shared = if self.alignment > 1 { 0.0 } else { candidates - small_reads };
        ListCost {
            lists: self.lists,
            hops: if candidates > 0.0 { 2.0 } else { 1.0 },
            reads: self.lists + small_reads,
            small_reads,
            bytes: of_lists + small_reads * each + shared * f64::from(row_bytes),
            vector_bytes: row_bytes,
            alignment: self.alignment,
            centroids,
            vectors: if self.code_bytes.is_some() { candidates } else { self.lists * self.list_vectors },
            compute_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::cost::predict;
    use super::*;
    use crate::cost::demand::tests::device;
    use crate::cost::demand::{Bound, Execution};
    use proptest::prelude::*;

    const COPIES: CoupledShape = CoupledShape {
        lists: 20.0,
        list_vectors: 200.0,
        vector_bytes: 1536,
        code_bytes: None,
        candidates: 30.0,
        apart: 0.5,
        alignment: 1,
    };
    const CODES: CoupledShape = CoupledShape { code_bytes: Some(48), ..COPIES };

    #[test]
    fn codes_take_fewer_bytes_and_a_round_more() {
        let (copies, codes) = (COPIES.cost(1000.0, 1e5), CODES.cost(1000.0, 1e5));
        assert_eq!((copies.hops, copies.reads, copies.vectors), (1.0, 20.0, 4000.0));
        assert_eq!(copies.bytes, 20.0 * 200.0 * 1540.0);
        assert_eq!((codes.hops, codes.reads, codes.small_reads, codes.vectors), (2.0, 35.0, 15.0, 30.0));
        assert_eq!(codes.bytes, 20.0 * 200.0 * 52.0 + 30.0 * 1540.0);
        assert!(COPIES.amplification(7.0) > 7.0 && CODES.amplification(7.0) < 1.25);
        // A narrow device is four times and more as fast, and one that is far and idle half as fast.
        let run = |in_flight| Execution { threads: 1, in_flight, issue_ns: 0.0 };
        let narrow = device(1000, 1.0, 1, 0.0);
        let (copied, coded) = (predict(&copies, &narrow, &run(1000)), predict(&codes, &narrow, &run(1000)));
        assert_eq!(copied.bound, Bound::Bandwidth);
        assert!(coded.qps > 4.0 * copied.qps);
        let far = device(10_000_000, 0.0, 1, 0.0);
        let ratio = predict(&codes, &far, &run(1)).qps / predict(&copies, &far, &run(1)).qps;
        assert!((0.45..0.55).contains(&ratio), "{ratio}");
    }

    #[test]
    fn blocks_are_read_whole() {
        let disk = CoupledShape { alignment: 4096, ..CODES }.cost(0.0, 0.0);
        // Lists of 10400 bytes touch three blocks; a row of 1540 begins anywhere at a multiple of 4.
        assert_eq!(disk.bytes, 20.0 * 3.0 * 4096.0 + 15.0 * (4096.0 + 1536.0));
        assert_eq!(disk.moved_bytes(4096), disk.bytes);
    }

    proptest! {
        #[test]
        fn more_of_anything_is_never_cheaper(
            lists in 1.0..500.0_f64, list_vectors in 1.0..1000.0_f64, vector_bytes in 1..10_000_u32,
            code_bytes in 1..200_u32, candidates in 0.0..500.0_f64, apart in 0.0..1.0_f64, power in 0..13_u32,
        ) {
            let alignment = 1 << power;
            let shape = CoupledShape {
                lists, list_vectors, vector_bytes, code_bytes: Some(code_bytes), candidates, apart, alignment,
            };
            let cost = shape.cost(1.0, 1.0);
            for more in [
                CoupledShape { lists: lists + 1.0, ..shape },
                CoupledShape { list_vectors: list_vectors + 1.0, ..shape },
                CoupledShape { code_bytes: Some(code_bytes + 1), ..shape },
                CoupledShape { candidates: candidates + 1.0, ..shape },
                CoupledShape { alignment: 2 * alignment, ..shape },
            ] {
                // Reads of whole units save the bytes of what shares one.
                let slack = if alignment == 1 { candidates * f64::from(vector_bytes + 4) } else { 0.0 };
                let told = more.cost(1.0, 1.0);
                prop_assert!(told.bytes + slack >= cost.bytes * (1.0 - 1e-12) && told.reads >= cost.reads);
            }
            prop_assert!(cost.small_reads <= cost.reads && cost.hops <= 2.0);
        }
    }
}
