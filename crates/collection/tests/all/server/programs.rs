//! Random programs, as in memory and in folders.

use crate::model::cases::Case;
use crate::model::program::Program;
use crate::server::batches::options;
use crate::server::service::service;
use bathyal_collection::CollectionLocation;

/// Steps of a program; each sends several requests to the server.
const STEPS: usize = 120;

#[test]
fn random_programs_work_on_a_server() {
    let Some(service) = service() else { return };
    for (seed, case) in [Case::numbers(), Case::texts()].iter().enumerate() {
        let place = service.place("program");
        let store = options(&place, &service.endpoint).store;
        let mut program =
            Program::new(case, CollectionLocation::at(place.address("docs"), &store).unwrap(), seed as u64);
        program.run(STEPS);
    }
}
