//! The readers of operations and responses of memory nodes.

use bathyal_remote::wire::{OperationHead, Outcome, ResponseHead, Verb};

/// Returns an operation and a response of each kind.
pub fn wire() -> Vec<Vec<u8>> {
    let verbs =
        [Verb::Read, Verb::Write, Verb::CompareAndSwap { expected: 1, new: 2 }, Verb::FetchAndAdd { by: 3 }];
    let heads = verbs
        .map(|verb| OperationHead { verb, linked: true, len: 8, region: 77, offset: 4096 }.encode().to_vec());
    let outcomes = [Outcome::Done(8), Outcome::Outside, Outcome::Unknown, Outcome::Denied, Outcome::Skipped];
    let answers = outcomes.map(|outcome| ResponseHead { outcome, old: 5 }.encode().to_vec());
    heads.into_iter().chain(answers).collect()
}

/// Reads an operation and a response. Encoding an accepted one returns the same bytes.
pub fn operations(bytes: &[u8]) {
    if let Some(head) = bytes.first_chunk()
        && let Ok(decoded) = OperationHead::decode(head)
    {
        assert!(decoded.len > 0 && decoded.encode() == *head);
    }
    if let Some(answer) = bytes.first_chunk()
        && let Ok(decoded) = ResponseHead::decode(answer)
    {
        assert!(decoded.encode() == *answer);
    }
}
