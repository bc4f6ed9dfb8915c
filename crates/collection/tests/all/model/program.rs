//! Random programs: steps that write to a collection and read it. The results are compared with the expected
//! ones.

use crate::model::cases::Case;
use crate::model::columns::{batch, ids, rows};
use crate::model::compare::{Recall, Search, check_after, check_all, check_count, check_get, check_search};
use crate::model::conditions::Condition;
use crate::model::truth::{Change, Truth};
use bathyal_collection::{
    Collection, CollectionError, CollectionLocation, CollectionOptions, CompactOptions, Id, Snapshot, Written,
};
use bathyal_tier::Control;
use bathyal_vectors::progress::Silent;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Number of snapshots that are kept to be compared later.
const SNAPSHOTS: usize = 3;

/// The state of a program.
pub struct Program<'a> {
    case: &'a Case,
    place: CollectionLocation,
    options: CollectionOptions,
    random: StdRng,
    collection: Option<Collection>,
    /// Another handle; it sees new writes after a refresh.
    reader: Collection,
    truth: Truth,
    snapshots: Vec<(Snapshot, Truth)>,
    pub recall: Recall,
    /// The last steps, for the message of a failure.
    step: String,
    number: usize,
    seed: u64,
}

/// Writes a batch to a collection.
pub fn write(case: &Case, collection: &Collection, change: &Change) -> Result<Written, CollectionError> {
    match change {
        Change::Add(added) => collection.add(rows(case, added)),
        Change::Upsert(put) => collection.upsert(rows(case, put)),
        Change::Update(own, columns) => collection.update(ids(case, own), batch(case, columns, own.len())),
        Change::Delete(own) => collection.delete(ids(case, own)),
        Change::DeleteMatching(condition) => {
            collection.delete_matching(&condition.filter(case), Control::default())
        }
    }
}

/// Returns a random batch of changes.
pub fn random_change(case: &Case, truth: &Truth, random: &mut StdRng) -> Change {
    let count = match random.random_range(0..20) {
        0 => random.random_range(1..150),
        _ => random.random_range(1..6),
    };
    let apart = random.random_range(0..30) > 0;
    let columns = case.schema.columns.len();
    let own =
        |count: usize, random: &mut StdRng| -> Vec<Id> { (0..count).map(|_| case.any_id(random)).collect() };
    match random.random_range(0..100) {
        0..25 => {
            let mut rows = case.rows(count, apart, random);
            // Most of the time the batch should succeed.
            if random.random_range(0..5) > 0 && apart {
                rows.retain(|(id, _)| !truth.rows.contains_key(id));
            }
            if rows.is_empty() { Change::Upsert(case.rows(1, true, random)) } else { Change::Add(rows) }
        }
        25..55 => Change::Upsert(case.rows(count, apart, random)),
        55..75 if columns > 0 => {
            let mut own = own(count, random);
            if apart {
                own.sort();
                own.dedup();
            }
            let some: Vec<usize> = (0..columns).filter(|_| random.random()).collect();
            let values =
                |column: usize, random: &mut StdRng| own.iter().map(|_| case.value(column, random)).collect();
            let columns = some.into_iter().map(|column| (column, values(column, random))).collect();
            Change::Update(own, columns)
        }
        55..95 => Change::Delete(own(count, random)),
        _ => Change::DeleteMatching(Condition::random(case, 2, random)),
    }
}

impl<'a> Program<'a> {
    /// Begins a program over a new collection.
    pub fn new(case: &'a Case, place: CollectionLocation, seed: u64) -> Program<'a> {
        let mut options = case.options();
        options.durability = bathyal_collection::Durability::System;
        // In some programs many batches, or most of them, count as large.
        options.direct_bytes = [None, Some(4_000), None, Some(100)][(seed % 4) as usize];
        // With a budget, searches read from the disk; without one, small segments are in memory.
        options.index.memory_bytes = [Some(256 << 20), None, None][(seed % 3) as usize];
        let collection = Collection::create_in(place.clone(), case.schema.clone(), &options).unwrap();
        let reader = Collection::open_in(place.clone(), &options).unwrap();
        Program {
            case,
            place,
            options,
            random: StdRng::seed_from_u64(seed),
            collection: Some(collection),
            reader,
            truth: Truth::default(),
            snapshots: Vec::new(),
            recall: Recall::default(),
            step: String::new(),
            number: 0,
            seed,
        }
    }

    fn collection(&self) -> &Collection {
        self.collection.as_ref().unwrap()
    }

    /// Runs some steps, and compares everything at the end.
    pub fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            self.number += 1;
            match self.random.random_range(0..1000) {
                0..430 => self.change(),
                430..640 => self.search(),
                640..760 => self.get(),
                760..880 => self.count(),
                880..900 => self.scan(),
                900..960 => self.refresh(),
                960..975 => self.pin(),
                975..990 => self.compare_pinned(),
                990..997 => self.flush(),
                997 => self.compact(),
                _ => self.reopen(),
            }
        }
        self.step = "at the end".into();
        self.collection().compact(&CompactOptions { full: true }, &Silent).unwrap();
        assert!(self.collection().describe().segments.len() <= 1);
        check_all(self.case, &self.collection().snapshot(), &self.truth, None, 1000);
        assert_eq!(self.collection().verify(&Silent).unwrap(), Vec::<String>::new());
        self.snapshots.iter().for_each(|(then, truth)| check_all(self.case, then, truth, None, 1000));
    }

    fn change(&mut self) {
        let change = random_change(self.case, &self.truth, &mut self.random);
        self.step = format!("{change:.600?}");
        let meant = self.truth.apply(&change);
        match (write(self.case, self.collection(), &change), meant) {
            (Ok(written), Some(meant)) => assert_eq!(written, meant),
            (Err(CollectionError::Duplicate { .. }), None) => {}
            (written, meant) => panic!("{written:?}, should be {meant:?}"),
        }
        check_count(self.case, &self.collection().snapshot(), &self.truth, None);
    }

    fn condition(&mut self) -> Option<Condition> {
        self.random.random::<bool>().then(|| Condition::random(self.case, 2, &mut self.random))
    }

    fn search(&mut self) {
        let condition = self.condition();
        let (case, random) = (self.case, &mut self.random);
        let field = random.random_range(0..case.schema.vectors.len());
        let k = if random.random_range(0..10) == 0 {
            random.random_range(1..60)
        } else {
            random.random_range(1..11)
        };
        let queries: Vec<Vec<u8>> =
            (0..random.random_range(1..3)).map(|_| case.vector(field, random)).collect();
        let search = Search { field, k, recall: 0.9, condition: condition.as_ref() };
        self.step = format!("{search:?}");
        let queries: Vec<&[u8]> = queries.iter().map(Vec::as_slice).collect();
        let now = self.collection.as_ref().unwrap().snapshot();
        check_search(case, &now, &self.truth, &search, &queries, &mut self.recall);
    }

    fn get(&mut self) {
        let count = self.random.random_range(1..8);
        let asked: Vec<Id> = (0..count).map(|_| self.case.any_id(&mut self.random)).collect();
        self.step = format!("get {asked:?}");
        check_get(self.case, &self.collection().snapshot(), &self.truth, &asked);
    }

    fn count(&mut self) {
        let condition = Condition::random(self.case, 2, &mut self.random);
        self.step = format!("count {condition:?}");
        check_count(self.case, &self.collection().snapshot(), &self.truth, Some(&condition));
    }

    fn scan(&mut self) {
        let condition = self.condition();
        self.step = format!("scan {condition:?}");
        let most = self.random.random_range(1..300);
        check_all(self.case, &self.collection().snapshot(), &self.truth, condition.as_ref(), most);
        let after = self.case.any_id(&mut self.random);
        self.step = format!("scan after {after}");
        check_after(self.case, &self.collection().snapshot(), &self.truth, &after);
    }

    /// Checks that the other handle sees all writes after a refresh.
    fn refresh(&mut self) {
        self.step = "refresh".into();
        self.reader.refresh().unwrap();
        let seen = self.reader.snapshot();
        assert_eq!(seen.sequence(), self.collection().snapshot().sequence());
        check_count(self.case, &seen, &self.truth, None);
        let asked: Vec<Id> = (0..4).map(|_| self.case.any_id(&mut self.random)).collect();
        check_get(self.case, &seen, &self.truth, &asked);
        if self.random.random_range(0..10) == 0 {
            check_all(self.case, &seen, &self.truth, None, 500);
        }
        assert!(!self.reader.refresh().unwrap(), "nothing is new");
    }

    fn pin(&mut self) {
        self.step = "pin".into();
        if self.snapshots.len() == SNAPSHOTS {
            let dropped = self.random.random_range(0..SNAPSHOTS);
            self.snapshots.swap_remove(dropped);
        }
        self.snapshots.push((self.collection().snapshot(), self.truth.clone()));
    }

    fn compare_pinned(&mut self) {
        self.step = "compare a snapshot".into();
        if self.snapshots.is_empty() {
            return;
        }
        let at = self.random.random_range(0..self.snapshots.len());
        let condition = self.condition();
        let (then, truth) = &self.snapshots[at];
        check_all(self.case, then, truth, condition.as_ref(), 400);
        let query = self.case.vector(0, &mut self.random);
        let search = Search { field: 0, k: 5, recall: 0.9, condition: condition.as_ref() };
        check_search(self.case, then, truth, &search, &[&query], &mut self.recall);
    }

    fn flush(&mut self) {
        self.step = "flush".into();
        self.collection().flush().unwrap();
        let now = self.collection().describe();
        assert_eq!((now.rows_in_memory, now.rows), (0, self.truth.rows.len() as u64));
    }

    fn compact(&mut self) {
        let full = self.random.random();
        self.step = format!("compact, full {full}");
        let done = self.collection().compact(&CompactOptions { full }, &Silent).unwrap();
        let now = self.collection().describe();
        assert_eq!((done.segments_after, now.rows), (now.segments.len(), self.truth.rows.len() as u64));
        assert!(!full || now.segments.len() <= 1 && now.segments.iter().all(|segment| segment.deleted == 0));
    }

    /// Replaces the handle by a new one.
    fn reopen(&mut self) {
        self.step = "open again".into();
        // Segments are not kept for the snapshots of a closed handle.
        self.snapshots.clear();
        self.collection = None;
        let collection = Collection::open_in(self.place.clone(), &self.options).unwrap();
        check_count(self.case, &collection.snapshot(), &self.truth, None);
        self.collection = Some(collection);
        if self.random.random() {
            self.reader = Collection::open_in(self.place.clone(), &self.options).unwrap();
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Program { case, seed, number, step, .. } = self;
            eprintln!("{}, seed {seed}, step {number}: {step}", case.name);
        }
    }
}
