//! Simulated shared memory. Operations take effect piece by piece, in an order that a seed determines.

use super::super::shared_memory::{GrowthMemory, MemoryOperation, OperationKind};
use crate::error::IndexError;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Operations that are awaited together.
#[derive(Debug)]
struct Batch {
    operations: Vec<MemoryOperation>,
    remaining: usize,
}

/// A piece of an operation: some of its bytes, or a whole operation on a number.
#[derive(Debug)]
struct Piece {
    operation: usize,
    from: usize,
    to: usize,
}

/// A chain in flight: the pieces of each operation. Pieces of one operation take effect in any order.
#[derive(Debug)]
struct Chain {
    client: u64,
    batch: Rc<RefCell<Batch>>,
    operations: VecDeque<Vec<Piece>>,
}

/// The memory, and the operations in flight.
pub(super) struct SimulatedMemory {
    pub(super) bytes: Vec<u8>,
    chains: Vec<Chain>,
    pub(super) holders: Vec<u64>,
    pub(super) random: StdRng,
    pub(super) clock: u64,
    /// A client whose operations do not take effect for now.
    pub(super) frozen: Option<u64>,
}

impl SimulatedMemory {
    pub(super) fn new(bytes: Vec<u8>, seed: u64) -> Rc<RefCell<SimulatedMemory>> {
        let random = StdRng::seed_from_u64(seed);
        Rc::new(RefCell::new(SimulatedMemory {
            bytes,
            chains: Vec::new(),
            holders: Vec::new(),
            random,
            clock: 0,
            frozen: None,
        }))
    }

    fn submit(&mut self, client: u64, operations: Vec<MemoryOperation>) -> Rc<RefCell<Batch>> {
        let mut chains: Vec<VecDeque<Vec<Piece>>> = vec![VecDeque::new()];
        let count = operations.len();
        for (number, operation) in operations.iter().enumerate() {
            let pieces = self.pieces(number, operation.offset as usize, operation.bytes().len());
            if let Some(chain) = chains.last_mut() {
                chain.push_back(pieces);
            }
            if !operation.linked && number + 1 < count {
                chains.push(VecDeque::new());
            }
        }
        let batch = Rc::new(RefCell::new(Batch { operations, remaining: count }));
        let submitted = chains.into_iter().filter(|chain| !chain.is_empty());
        self.chains.extend(submitted.map(|operations| Chain { client, batch: batch.clone(), operations }));
        batch
    }

    /// Cuts an operation of `len` bytes into pieces, at multiples of 8 bytes. An operation on a number is one
    /// piece.
    fn pieces(&mut self, operation: usize, offset: usize, len: usize) -> Vec<Piece> {
        let mut cuts = vec![0, len];
        for _ in 0..self.random.random_range(0..3) {
            let cut = self.random.random_range(0..=len);
            cuts.push(((offset + cut) & !7).saturating_sub(offset));
        }
        cuts.sort_unstable();
        let piece = |pair: &[usize]| Piece { operation, from: pair[0], to: pair[1] };
        let mut pieces: Vec<Piece> = cuts.windows(2).filter(|pair| pair[0] < pair[1]).map(piece).collect();
        if pieces.is_empty() {
            pieces.push(Piece { operation, from: 0, to: 0 });
        }
        pieces
    }

    /// Executes one random piece. Returns false if nothing was executed.
    pub(super) fn execute_piece(&mut self) -> bool {
        if self.chains.is_empty() {
            return false;
        }
        let at = self.random.random_range(0..self.chains.len());
        let SimulatedMemory { bytes, chains, random, .. } = self;
        let chain = &mut chains[at];
        if self.frozen == Some(chain.client) {
            return false;
        }
        let mut batch = chain.batch.borrow_mut();
        let Some(pieces) = chain.operations.front_mut() else { return false };
        let piece = pieces.swap_remove(random.random_range(0..pieces.len()));
        let operation = &mut batch.operations[piece.operation];
        let offset = operation.offset as usize;
        let place = offset + piece.from..offset + piece.to;
        match &mut operation.kind {
            OperationKind::Read(into) => into[piece.from..piece.to].copy_from_slice(&bytes[place]),
            OperationKind::Write(from) => bytes[place].copy_from_slice(&from[piece.from..piece.to]),
            kind @ (OperationKind::Swap { .. } | OperationKind::Add(_)) => {
                assert_eq!(offset % 8, 0, "a number at {offset}");
                let number = &mut bytes[offset..offset + 8];
                operation.old = u64::from_le_bytes(number.try_into().unwrap());
                let new = match kind {
                    OperationKind::Swap { expected, new } if operation.old == *expected => *new,
                    OperationKind::Add(by) => operation.old.wrapping_add(*by),
                    _ => operation.old,
                };
                number.copy_from_slice(&new.to_le_bytes());
            }
        }
        if pieces.is_empty() {
            chain.operations.pop_front();
            batch.remaining -= 1;
        }
        drop(batch);
        if self.chains[at].operations.is_empty() {
            self.chains.swap_remove(at);
        }
        true
    }

    /// Disconnects a client: removes its operations in flight.
    pub(super) fn fence(&mut self, client: u64) {
        self.chains.retain(|chain| chain.client != client);
        self.holders.retain(|holder| *holder != client);
    }
}

/// The memory from the view of one client.
#[derive(Clone)]
pub(super) struct ClientMemory {
    pub(super) simulation: Rc<RefCell<SimulatedMemory>>,
    pub(super) client: u64,
}

impl GrowthMemory for ClientMemory {
    async fn run(&self, operations: Vec<MemoryOperation>) -> Result<Vec<MemoryOperation>, IndexError> {
        let batch = self.simulation.borrow_mut().submit(self.client, operations);
        std::future::poll_fn(|_| if batch.borrow().remaining == 0 { Poll::Ready(()) } else { Poll::Pending })
            .await;
        let mut batch = batch.borrow_mut();
        Ok(std::mem::take(&mut batch.operations))
    }

    async fn pause(&self) {
        let mut passed = false;
        std::future::poll_fn(|_| match std::mem::replace(&mut passed, true) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }

    fn holder(&self) -> u64 {
        self.client
    }

    fn holders(&self) -> Result<Option<Vec<u64>>, IndexError> {
        Ok(Some(self.simulation.borrow().holders.clone()))
    }
}

/// The task of a client.
pub(super) type Task<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// Polls a task. Returns true if it has ended.
pub(super) fn step(task: &mut Task<'_>) -> bool {
    task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
}
