//! Cluster-aware grouping (second-tier-memory, section 6.2): beside which of its lists each vector is stored.
//!
//! Let `A[i][j]` be 1 if vector `i` is in list `j`, `h[j]` how often list `j` is read, and `P[i][j]` 1 if `i`
//! is stored with `j`. A read of list `j` is one large read and a small one for each of its vectors that is
//! stored elsewhere, so what is to be small is `sum over j of h[j] * (1 + sum over i of (A[i][j] - P[i][j]))`
//! with `P <= A` and one `j` for each `i` (objective (4) of the paper; it prints `P` where its text and its
//! constraints mean `A - P`).
//!
//! **The greedy choice is optimal.** `h` and `A` are given, so the objective is a constant less `sum over i
//! of (sum over j of h[j] * P[i][j])`. No constraint joins two vectors, so each inner sum is made as large as
//! it can be on its own; it has one term, so by the list of the vector that is read most often. That also
//! makes the expected number of vectors fetched singly the least if those that another list of the same query
//! brings along are not fetched again: a vector is spared exactly when its owner is among the lists that are
//! read.

/// The owner of a vector that no list has offered to store.
pub(crate) const NO_LIST: u32 = u32::MAX;

/// The owner of each vector, found in one pass over the lists.
#[derive(Debug)]
pub(crate) struct Owners<'a> {
    /// How often each list is read, in any unit.
    frequencies: &'a [u32],
    owners: Vec<u32>,
}

impl<'a> Owners<'a> {
    /// Creates vectors without owners. `frequencies` has a number for each list.
    pub(crate) fn new(vectors: usize, frequencies: &'a [u32]) -> Owners<'a> {
        Owners { frequencies, owners: vec![NO_LIST; vectors] }
    }

    /// Makes `list` the owner of its vectors if it is read more often than their owners so far. Of lists that
    /// are read equally often the lowest becomes the owner, independent of their order.
    pub(crate) fn offer(&mut self, list: u32, vectors: &[u32]) {
        let offered = self.frequencies[list as usize];
        for vector in vectors {
            let owner = &mut self.owners[*vector as usize];
            let found = self.frequencies.get(*owner as usize).copied();
            if found.is_none_or(|found| (offered, *owner) > (found, list)) {
                *owner = list;
            }
        }
    }

    /// Returns the owner of each vector; [`NO_LIST`] if it is in no list.
    pub(crate) fn finish(self) -> Vec<u32> {
        self.owners
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use microlp::{ComparisonOp, OptimizationDirection, Problem, SolutionStatus};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    /// Vectors of each list, and how often each list is read.
    struct Instance {
        vectors: usize,
        lists: Vec<Vec<u32>>,
        frequencies: Vec<u32>,
    }

    impl Instance {
        fn random(random: &mut StdRng) -> Instance {
            let (vectors, count) = (random.random_range(1..=12), random.random_range(1..=7));
            let mut lists = vec![Vec::new(); count];
            for vector in 0..vectors as u32 {
                let certain = random.random_range(0..count);
                for (list, members) in lists.iter_mut().enumerate() {
                    if list == certain || random.random_bool(0.4) {
                        members.push(vector);
                    }
                }
            }
            // Few values, so that there are ties and lists that are never read.
            let frequencies = (0..count).map(|_| random.random_range(0..5)).collect();
            Instance { vectors, lists, frequencies }
        }

        /// Returns the value of objective (4) for an owner of each vector.
        fn reads(&self, owners: &[u32]) -> u64 {
            let reads = |(list, members): (usize, &Vec<u32>)| {
                let elsewhere = members.iter().filter(|v| owners[**v as usize] != list as u32).count() as u64;
                u64::from(self.frequencies[list]) * (1 + elsewhere)
            };
            self.lists.iter().enumerate().map(reads).sum()
        }

        /// Returns the least value of objective (4), by branch and bound over all `P`.
        fn least_reads(&self) -> f64 {
            let mut problem = Problem::new(OptimizationDirection::Minimize);
            let mut stored = vec![Vec::new(); self.vectors];
            let mut constant = 0.0;
            for (members, frequency) in self.lists.iter().zip(&self.frequencies) {
                let frequency = f64::from(*frequency);
                constant += frequency * (1.0 + members.len() as f64);
                for vector in members {
                    let variable = problem.add_binary_var(-frequency);
                    stored[*vector as usize].push((variable, 1.0));
                }
            }
            for lists in stored {
                problem.add_constraint(&lists[..], ComparisonOp::Eq, 1.0);
            }
            let outcome = problem.solve().expect("every vector has a list");
            let solution = outcome.solution().expect("no limit stops it");
            assert_eq!(solution.status(), SolutionStatus::Optimal);
            constant + solution.objective()
        }
    }

    fn owners(instance: &Instance, order: impl Iterator<Item = u32>) -> Vec<u32> {
        let mut owners = Owners::new(instance.vectors, &instance.frequencies);
        order.for_each(|list| owners.offer(list, &instance.lists[list as usize]));
        owners.finish()
    }

    #[test]
    fn no_exact_solution_is_better() {
        let mut random = StdRng::seed_from_u64(5);
        for _ in 0..200 {
            let instance = Instance::random(&mut random);
            let lists = instance.lists.len() as u32;
            let greedy = owners(&instance, 0..lists);
            assert_eq!(
                greedy,
                owners(&instance, (0..lists).rev()),
                "the owners depend on the order of lists"
            );
            for (vector, owner) in greedy.iter().enumerate() {
                assert!(instance.lists[*owner as usize].contains(&(vector as u32)));
            }
            let (found, least) = (instance.reads(&greedy) as f64, instance.least_reads());
            assert!((found - least).abs() < 1e-6, "greedy {found}, exact {least}");
        }
    }

    #[test]
    fn a_vector_without_a_list_has_no_owner() {
        let mut owners = Owners::new(2, &[0]);
        owners.offer(0, &[1]);
        assert_eq!(owners.finish(), [NO_LIST, 0]);
    }
}
