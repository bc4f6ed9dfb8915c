//! Random schedules of clients on simulated memory.

use super::super::group_reader::{FetchStep, GroupPlaces, GroupReader, LoadedPartition};
use super::super::layout::{GroupPlace, GroupWord, GrowthLayout, u64_at};
use super::super::overflow::OverflowChange;
use super::super::regroup::SubIndexBuilder;
use super::super::shared_memory::read;
use super::super::units::{BUILT, FIRST_EPOCH, is_free, take};
use super::super::writer::GrowthWriter;
use super::history::{Act, Event, History};
use super::simulated_memory::{ClientMemory, SimulatedMemory, Task, step};
use crate::error::IndexError;
use crate::families::partitioned::subindex::SubIndex;
use crate::families::partitioned::subindex::options::PartitionedOptions;
use crate::format::identity::Identity;
use bathyal_kernels::{Element, Metric};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const DIM: usize = 4;
const PARTITIONS: u32 = 3;
/// Vectors of each partition as built.
const BUILT_VECTORS: u32 = 2;
const CLIENTS: u64 = 3;
/// Rounds in which a writer tries again if there is no room.
const ROUNDS: usize = 12;

fn builder() -> SubIndexBuilder {
    let options = PartitionedOptions { links: 4, construction_list: 8, ..PartitionedOptions::default() };
    SubIndexBuilder { options, dim: DIM, element: Element::U8, metric: Metric::L2 }
}

fn row(id: u32) -> Vec<u8> {
    (0..DIM as u32).map(|at| (id * 37 + at * 11) as u8).collect()
}

/// Returns the partition of a vector.
fn partition(id: u32) -> u32 {
    (id * 7 / 3) % PARTITIONS
}

/// Builds an index with `units` units and `slots` slots in each overflow.
fn built(units: u32, slots: u32) -> (GrowthLayout, Vec<u8>, Vec<GroupPlace>) {
    let layout = GrowthLayout {
        partitions: PARTITIONS,
        row_bytes: DIM,
        slots,
        unit_bytes: 256,
        units,
        ids: 400,
        most_vectors: 100,
        longest: 1 << 20,
    };
    let mut bytes = vec![0; layout.file_bytes() as usize];
    let put =
        |bytes: &mut Vec<u8>, at: u64, from: &[u8]| bytes[at as usize..][..from.len()].copy_from_slice(from);
    let reader = GroupReader { layout, identity: Identity::NONE, places: GroupPlaces::new(Vec::new()) };
    let (mut first, mut places) = (0, Vec::new());
    for group in 0..layout.groups() {
        let mut encoded = [Vec::new(), Vec::new()];
        let mut vectors = [0; 2];
        for side in 0..2 {
            let partition = 2 * group + side as u32;
            if partition < PARTITIONS {
                let ids: Vec<u32> = (0..BUILT_VECTORS).map(|at| partition * BUILT_VECTORS + at).collect();
                let rows: Vec<u8> = ids.iter().flat_map(|id| row(*id)).collect();
                encoded[side] = builder().subindex(&reader, partition, (&ids, &rows), None).unwrap();
                vectors[side] = BUILT_VECTORS;
                for id in ids {
                    put(&mut bytes, layout.partition_entry_at(id), &(partition + 1).to_le_bytes());
                }
            }
        }
        let lengths = [encoded[0].len() as u32, encoded[1].len() as u32];
        let units = layout.units_of(lengths) as u32;
        let place =
            GroupPlace { group, word: GroupWord { version: 1, first, units }, bytes: lengths, vectors };
        put(&mut bytes, place.start(&layout), &place.head(Identity::NONE));
        put(&mut bytes, place.start(&layout) + 64, &encoded[0]);
        put(&mut bytes, place.overflow_at(&layout) + 8, &place.tag().to_le_bytes());
        put(&mut bytes, place.overflow(&layout).end(), &encoded[1]);
        put(&mut bytes, layout.word_at(group), &place.word.encode().to_le_bytes());
        (first..first + units).for_each(|unit| put(&mut bytes, layout.unit_at(unit), &BUILT.to_le_bytes()));
        first += units;
        places.push(place);
    }
    put(&mut bytes, layout.next_id_at(), &u64::from(PARTITIONS * BUILT_VECTORS).to_le_bytes());
    put(&mut bytes, layout.epoch_at(), &FIRST_EPOCH.to_le_bytes());
    (layout, bytes, places)
}

/// The state of a client, and the shared history.
struct Client {
    memory: ClientMemory,
    reader: GroupReader,
    builder: SubIndexBuilder,
    history: Rc<RefCell<History>>,
    /// Vectors that were inserted by any client.
    known: Rc<RefCell<Vec<u32>>>,
    loaded: RefCell<Vec<Option<LoadedPartition>>>,
    /// Operations that this client began and has not ended.
    begun: RefCell<Vec<(u32, Act, u64)>>,
    refused: Cell<u32>,
}

impl Client {
    fn now(&self) -> u64 {
        let simulation = &mut *self.memory.simulation.borrow_mut();
        simulation.clock += 1;
        simulation.clock
    }

    /// Searches once, and returns all visible vectors.
    async fn visible_vectors(&self) -> Vec<u32> {
        let mut seen = Vec::new();
        for partition in 0..PARTITIONS {
            let loaded = self.partition(partition).await;
            if !loaded.subindex.bytes().is_empty() {
                let index = SubIndex::read(loaded.subindex.bytes(), DIM).unwrap();
                let ids = (0..index.count() as u32)
                    .map(|at| (index.id(at), &index.rows[at as usize * DIM..][..DIM]));
                for (id, found) in ids.filter(|(id, _)| !loaded.changes.has_deleted(*id)) {
                    assert_eq!(found, row(id));
                    seen.push(id);
                }
            }
            assert_eq!(
                loaded.changes.rows,
                loaded.changes.ids.iter().flat_map(|id| row(*id)).collect::<Vec<_>>()
            );
            seen.extend_from_slice(&loaded.changes.ids);
        }
        seen
    }

    async fn partition(&self, partition: u32) -> LoadedPartition {
        let kept = self.loaded.borrow()[partition as usize].clone();
        let (mut fetch, mut span) = self.reader.begin(partition, kept.as_ref());
        loop {
            let bytes = read(&self.memory, span.offset, span.len as usize).await.unwrap();
            match fetch.arrived(&self.reader, &bytes).unwrap() {
                FetchStep::Read(next) => span = next,
                FetchStep::Moved => (fetch, span) = self.reader.begin(partition, None),
                FetchStep::Done(loaded) => {
                    self.loaded.borrow_mut()[partition as usize] = Some(loaded.clone());
                    return loaded;
                }
            }
        }
    }

    async fn search(&self) {
        let begin = self.now();
        let seen = self.visible_vectors().await;
        let end = Some(self.now());
        let mut sorted = seen.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), seen.len(), "a vector is visible twice: {seen:?}");
        let mut history = self.history.borrow_mut();
        // Record all ids, including those that are inserted later.
        for id in 0..self.reader.layout.ids.min(80) {
            history.add(id, Event { act: Act::See(seen.contains(&id)), begin, end });
        }
    }

    /// Applies changes of a group, and records each in the history.
    async fn change(&self, writer: &GrowthWriter<'_, ClientMemory>, changes: Vec<OverflowChange>) {
        let begin = self.now();
        let act = |change: &OverflowChange| {
            if change.row.is_some() { Act::Insert } else { Act::Delete }
        };
        let all: Vec<(u32, Act)> = changes.iter().map(|change| (change.id, act(change))).collect();
        self.begun.borrow_mut().extend(all.iter().map(|(id, act)| (*id, *act, begin)));
        let group = changes[0].partition / 2;
        let mut left = changes;
        for round in 0..ROUNDS {
            if round > 0 {
                writer.end().await.unwrap();
                writer.begin().await.unwrap();
            }
            left = writer.change(group, left, if round == 0 { 50 } else { 0 }).await.unwrap();
            if left.is_empty() {
                break;
            }
        }
        let end = Some(self.now());
        let mut history = self.history.borrow_mut();
        self.begun.borrow_mut().clear();
        for (id, act) in all {
            if left.iter().any(|change| change.id == id) {
                self.refused.set(self.refused.get() + 1);
                continue;
            }
            if act == Act::Insert {
                self.known.borrow_mut().push(id);
            }
            history.add(id, Event { act, begin, end });
        }
    }

    async fn insert(&self, writer: &GrowthWriter<'_, ClientMemory>, count: u32) {
        writer.begin().await.unwrap();
        let first = writer.ids(count).await.unwrap().unwrap();
        for group in 0..self.reader.layout.groups() {
            let of_group = (first..first + count).filter(|id| partition(*id) / 2 == group);
            let changes: Vec<OverflowChange> = of_group
                .map(|id| OverflowChange { partition: partition(id), id, row: Some(row(id)) })
                .collect();
            if !changes.is_empty() {
                self.change(writer, changes).await;
            }
        }
        writer.end().await.unwrap();
    }

    async fn delete(&self, writer: &GrowthWriter<'_, ClientMemory>, id: u32) {
        writer.begin().await.unwrap();
        if let Some(partition) = writer.partition_of(id).await.unwrap() {
            self.change(writer, vec![OverflowChange { partition, id, row: None }]).await;
        }
        writer.end().await.unwrap();
    }

    /// Pauses all writers, and checks that nothing changes.
    async fn copy(&self, writer: &GrowthWriter<'_, ClientMemory>) {
        let (memory, layout) = (&self.memory, &self.reader.layout);
        if !writer.pause().await.unwrap() {
            return;
        }
        // Compare only what writers and readers use: killed clients leave other bytes.
        let table = async || read(memory, layout.word_at(0), 8 * layout.groups() as usize).await.unwrap();
        let before = (table().await, self.visible_vectors().await);
        let after = (table().await, self.visible_vectors().await);
        assert_eq!(before, after, "the index changed during a pause");
        writer.resume().await.unwrap();
    }

    /// Runs `acts` random operations.
    async fn run_random(&self, seed: u64, acts: usize) {
        let mut random = StdRng::seed_from_u64(seed);
        let writer = GrowthWriter::new(&self.memory, &self.reader, &self.builder, None);
        for _ in 0..acts {
            match random.random_range(0..10) {
                0..5 => self.insert(&writer, random.random_range(1..6)).await,
                5..7 => {
                    let id = {
                        let known = self.known.borrow();
                        known[random.random_range(0..known.len())]
                    };
                    self.delete(&writer, id).await;
                }
                7 => self.copy(&writer).await,
                _ => self.search().await,
            }
        }
    }
}

/// The result of a schedule: moves of groups, changes refused because there was no room, and killed clients.
struct Outcome {
    moves: u32,
    refused: u32,
    killed: u32,
}

/// Runs one schedule.
fn schedule(seed: u64) -> Outcome {
    let mut random = StdRng::seed_from_u64(seed);
    let (layout, bytes, places) = built([10, 14, 40][seed as usize % 3], 3 + seed as u32 % 4);
    let simulation = SimulatedMemory::new(bytes, seed ^ 1);
    let built: Vec<u32> = (0..PARTITIONS * BUILT_VECTORS).collect();
    let history = Rc::new(RefCell::new(History { built: built.clone(), ..History::default() }));
    let known = Rc::new(RefCell::new(built));
    let client = |number: u64| {
        simulation.borrow_mut().holders.push(number);
        let reader =
            GroupReader { layout, identity: Identity::NONE, places: GroupPlaces::new(places.clone()) };
        Client {
            memory: ClientMemory { simulation: simulation.clone(), client: number },
            reader,
            builder: builder(),
            history: history.clone(),
            known: known.clone(),
            loaded: RefCell::new(vec![None; PARTITIONS as usize]),
            begun: RefCell::default(),
            refused: Cell::new(0),
        }
    };
    let clients: Vec<Client> = (1..=CLIENTS).map(client).collect();
    let mut tasks: Vec<(usize, Task<'_>)> = clients
        .iter()
        .enumerate()
        .map(|(at, client)| (at, Box::pin(client.run_random(seed * 10 + at as u64, 8)) as Task<'_>))
        .collect();
    let (mut steps, mut thaw, mut killed, mut killed_connected) = (0_u64, 0, 0, Vec::new());
    while !tasks.is_empty() {
        steps += 1;
        assert!(steps < 2_000_000, "seed {seed}: no progress");
        if steps > thaw {
            // One client is slow for a while: none of its operations take effect until it continues.
            thaw = steps + random.random_range(0..4000);
            let slow = random.random_range(0..2 * CLIENTS);
            simulation.borrow_mut().frozen = (slow > 0 && slow <= CLIENTS).then_some(slow);
        }
        let acted = random.random_range(0..4) > 0 && simulation.borrow_mut().execute_piece();
        if !acted {
            let at = random.random_range(0..tasks.len());
            if simulation.borrow().frozen == Some(tasks[at].0 as u64 + 1) {
                continue;
            }
            if step(&mut tasks[at].1) {
                drop(tasks.swap_remove(at));
                continue;
            }
        }
        if tasks.len() > 1 && random.random_range(0..1500) == 0 {
            let (at, task) = tasks.swap_remove(random.random_range(0..tasks.len()));
            drop(task);
            killed += 1;
            for (id, act, begin) in clients[at].begun.take() {
                history.borrow_mut().add(id, Event { act, begin, end: None });
            }
            killed_connected.push(at as u64 + 1);
        }
        if !killed_connected.is_empty() && random.random_range(0..100) == 0 {
            simulation.borrow_mut().fence(killed_connected.swap_remove(0));
        }
    }
    drop(tasks);
    simulation.borrow_mut().frozen = None;
    killed_connected.into_iter().for_each(|client| simulation.borrow_mut().fence(client));
    while simulation.borrow_mut().execute_piece() {}
    let moves = check_end(&client(CLIENTS + 1), seed);
    let refused = clients.iter().map(|client| client.refused.get()).sum();
    Outcome { moves, refused, killed }
}

/// Checks the final state as `last` sees it, a client that has seen nothing before, and the whole history.
/// Returns the moves of groups.
fn check_end(last: &Client, seed: u64) -> u32 {
    run(last, async {
        last.search().await;
        free_units(last, seed).await;
    });
    if let Some((id, events)) = last.history.borrow().wrong() {
        panic!("seed {seed}: vector {id}: {events:?}");
    }
    let (layout, simulation) = (&last.reader.layout, last.memory.simulation.borrow());
    let word = |group| GroupWord::decode(u64_at(&simulation.bytes, layout.word_at(group) as usize));
    (0..layout.groups()).map(|group| word(group).version - 1).sum()
}

/// Runs a single task to completion.
fn run(client: &Client, task: impl Future<Output = ()>) {
    let mut task: Task<'_> = Box::pin(task);
    while !step(&mut task) {
        client.memory.simulation.borrow_mut().execute_piece();
    }
}

/// Checks that after all clients have ended, every unit is free that no group occupies.
async fn free_units(client: &Client, seed: u64) {
    let Client { memory, reader, .. } = client;
    let layout = &reader.layout;
    memory.simulation.borrow_mut().holders.retain(|holder| *holder == memory.client);
    for _ in 0..3 {
        assert_eq!(take(memory, layout, layout.units + 1).await.unwrap(), None);
    }
    let loaded = (0..layout.units)
        .filter(|unit| !is_free(u64_at(&memory.simulation.borrow().bytes, layout.unit_at(*unit) as usize)));
    let words = (0..layout.groups())
        .map(|group| u64_at(&memory.simulation.borrow().bytes, layout.word_at(group) as usize));
    let used: u32 = words.map(|word| GroupWord::decode(word).units).sum();
    assert_eq!(loaded.count() as u32, used, "seed {seed}: unused units are not free");
}

/// Units of groups are marked as free by mistake. Nothing is written to them.
#[test]
fn a_damaged_word_of_a_unit_causes_no_overwrite() {
    let (layout, mut bytes, places) = built(14, 3);
    for place in &places {
        let at = layout.unit_at(place.word.first) as usize;
        bytes[at..at + 8 * place.word.units as usize].fill(0);
    }
    // All other units are held.
    let used: u32 = places.iter().map(|place| place.word.units).sum();
    for unit in used..14 {
        bytes[layout.unit_at(unit) as usize] = 1;
    }
    let simulation = SimulatedMemory::new(bytes.clone(), 5);
    let memory = ClientMemory { simulation: simulation.clone(), client: 1 };
    let mut outcome = None;
    let mut task: Task<'_> = Box::pin(async {
        outcome = Some(take(&memory, &layout, 1).await);
    });
    while !step(&mut task) {
        simulation.borrow_mut().execute_piece();
    }
    drop(task);
    assert!(matches!(outcome, Some(Err(IndexError::Internal(_)))), "{outcome:?}");
    assert_eq!(simulation.borrow().bytes, bytes);
}

/// Runs schedules with the seeds below `count`, and checks that they exercise moves, kills and refusals.
fn schedules(count: u64) {
    let (mut moves, mut refused, mut killed) = (0, 0, 0);
    for seed in 0..count {
        let outcome = schedule(seed);
        moves += u64::from(outcome.moves);
        refused += u64::from(outcome.refused);
        killed += u64::from(outcome.killed);
    }
    assert!(moves > count && killed > count / 4, "{moves} moves, {killed} killed");
    assert!(refused > 0 && refused < 10 * count, "{refused} refused");
}

/// The number of schedules is `BATHYAL_SCHEDULES`, or 500 (`make check-histories`: ten thousand).
#[test]
fn writers_and_readers_are_linearizable() {
    let setting = std::env::var("BATHYAL_SCHEDULES").ok();
    schedules(setting.map_or(500, |count| count.parse().expect("a number of schedules")));
}
