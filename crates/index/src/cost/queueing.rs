//! Mean value analysis of a closed queueing network (Reiser & Lavenberg, JACM 1980): throughput for a number
//! of queries at once, if they wait for each other.

/// Returns the throughput of a closed network of stations and one delay, for each of `populations`, which
/// must ascend. A customer spends `demands` (seconds) at the stations, each of which serves one customer
/// after the other, and `delay` (seconds) where customers do not wait for each other. The result is exact if
/// service times are exponential.
pub fn closed_network(demands: &[f64], delay: f64, populations: &[u32]) -> Vec<(u32, f64)> {
    let mut queues = vec![0.0; demands.len()];
    let (mut populations_left, mut found) = (populations.iter().copied().peekable(), Vec::new());
    for customers in 1..=populations.last().copied().unwrap_or(0) {
        let waits: Vec<f64> =
            demands.iter().zip(&queues).map(|(demand, queue)| demand * (1.0 + queue)).collect();
        let throughput = f64::from(customers) / (delay + waits.iter().sum::<f64>());
        queues.iter_mut().zip(&waits).for_each(|(queue, wait)| *queue = throughput * wait);
        if populations_left.next_if_eq(&customers).is_some() {
            found.push((customers, throughput));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_station_with_a_delay_matches_the_machine_repair_model() {
        // By hand: 1 / (1 + 1) leaves half a customer at the station, then 2 / (1 + 1.5).
        let found = closed_network(&[1.0], 1.0, &[1, 2]);
        assert_eq!(found, [(1, 0.5), (2, 0.8)]);
        // Two equal stations without a delay: N / (N + 1).
        let found = closed_network(&[1.0, 1.0], 0.0, &[1, 3, 9]);
        for ((customers, throughput), expected) in found.iter().zip([0.5, 0.75, 0.9]) {
            assert!((throughput - expected).abs() < 1e-12, "{customers}: {throughput}");
        }
    }
}
