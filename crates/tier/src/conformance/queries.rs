//! Checks of a tier through the engine, as queries use it.

use super::{Breach, LEN, Make, MakeFailing, Outcome, QueryShare, content, ensure, first_difference};
use crate::backend::sim::random::SplitMix64;
use crate::contract::{Span, Tier};
use crate::engine::{Control, Cx, Engine, EngineOptions, Region};
use crate::error::{ReadError, RunError};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

fn engine(tier: &Arc<dyn Tier>, depth: u32) -> Result<Engine, Breach> {
    let options = EngineOptions { depth, buffer_budget_bytes: 16 << 20, ..EngineOptions::default() };
    Ok(Engine::new(tier.clone(), options)?)
}

/// Reads `spans` and compares their bytes with the content.
async fn read_and_compare(cx: &Cx, spans: &[Span]) -> Outcome {
    let batch = match cx.read(spans).await {
        Ok(batch) => batch,
        Err(e) => return Err(Breach(format!("{spans:?}: {e}"))),
    };
    ensure!(batch.len() == spans.len(), "a batch of {} for {} spans", batch.len(), spans.len());
    for (i, span) in spans.iter().enumerate() {
        let bytes = batch.bytes(i);
        ensure!(bytes.len() == span.len as usize, "{} bytes for {span:?}", bytes.len());
        let wrong = first_difference(span.offset, bytes);
        ensure!(wrong.is_none(), "{span:?}: wrong byte at {wrong:?}");
    }
    Ok(())
}

fn span(random: &mut SplitMix64, longest: u64) -> Span {
    let len = 1 + random.below(longest);
    Span::at(random.below(LEN as u64 - len + 1), len as u32)
}

/// Runs `n` queries, `width` at once, each made from its own seed.
fn run_all<'a, F: Future<Output = Outcome>>(
    engine: &mut Engine,
    n: u64,
    width: usize,
    query: impl Fn(Cx, u64) -> F + 'a,
) -> Outcome {
    let (mut seed, mut outcome) = (0, Ok(()));
    let next = |cx: &Cx| {
        seed += 1;
        (seed <= n).then(|| query(cx.clone(), seed))
    };
    engine.run(
        width,
        next,
        |answer| outcome = std::mem::replace(&mut outcome, Ok(())).and(answer),
        Control::default(),
    )?;
    outcome
}

async fn walk(cx: Cx, seed: u64) -> Outcome {
    let mut random = SplitMix64::new(seed, 9);
    for round in 0..12 {
        let spans: Vec<_> = (0..round % 6).map(|_| span(&mut random, 6000)).collect();
        read_and_compare(&cx, &spans).await?;
    }
    Ok(())
}

pub(super) fn dependent_reads(tier: &Arc<dyn Tier>, share: QueryShare) -> Outcome {
    for (depth, width) in [(1, 1), (1, 5), (16, 1), (16, 20)] {
        run_all(&mut engine(tier, depth)?, share.count(30), width, walk)?;
    }
    std::thread::scope(|scope| {
        let run = || run_all(&mut engine(tier, 8)?, share.count(30), 8, walk);
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|t| t.join().unwrap_or(Err(Breach("a thread panicked".into()))))
    })
}

pub(super) fn large_spans(tier: &Arc<dyn Tier>, share: QueryShare) -> Outcome {
    run_all(&mut engine(tier, 8)?, share.count(4), 2, |cx, seed| async move {
        let spans = [
            Span::at(1, (1 << 20) + 1),
            Span::at(511 + seed, 1 << 20),
            Span::at(LEN as u64 - (1 << 20) - 3, (1 << 20) + 3),
            Span::at(4095, 2),
        ];
        read_and_compare(&cx, &spans).await
    })
}

/// Checks reads into memory of the caller that is larger than the engine's budget, and refusals of invalid
/// places.
pub(super) fn into_regions(tier: &Arc<dyn Tier>, share: QueryShare) -> Outcome {
    let options = EngineOptions { depth: 8, buffer_budget_bytes: 64 << 10, ..EngineOptions::default() };
    let mut engine = Engine::new(tier.clone(), options)?;
    let (first, second) = (engine.adopt(Region::zeros(4 << 20)?)?, engine.adopt(Region::zeros(1 << 16)?)?);
    run_all(&mut engine, share.count(6), 3, move |cx, seed| async move {
        let (mut random, base) = (SplitMix64::new(seed, 11), seed as usize % 3 * (1 << 20));
        for round in 0..10 {
            let spans = [span(&mut random, 900_000), span(&mut random, 5000), span(&mut random, 5000)];
            let places = [base, base + 960_000 / 4096 * 4096, base + (1 << 20) - 16_384];
            let batch = match cx.read_into(&spans, first, &places).await {
                Ok(batch) => batch,
                // Another query may be reading into the same places.
                Err(ReadError::NoPlace { .. }) => continue,
                Err(error) => return Err(Breach(format!("round {round}: {error}"))),
            };
            for (i, span) in spans.iter().enumerate() {
                ensure!(
                    batch.bytes(i).len() == span.len as usize,
                    "{} bytes for {span:?}",
                    batch.bytes(i).len()
                );
                let wrong = first_difference(span.offset, batch.bytes(i));
                ensure!(wrong.is_none(), "{span:?} in a region: wrong byte at {wrong:?}");
            }
            read_and_compare(&cx, &[span(&mut random, 3000)]).await?;
        }
        Ok(())
    })?;
    run_all(&mut engine, 1, 1, move |cx, _| async move {
        let spans = [Span::at(0, 4096), Span::at(10_000, 4096)];
        let refused = async |places: &[usize]| {
            let outcome = cx.read_into(&spans, second, places).await;
            matches!(outcome, Err(ReadError::NoPlace { .. }))
        };
        ensure!(refused(&[0]).await, "a missing place is not refused");
        ensure!(refused(&[0, (1 << 16) - 512]).await, "a place across the region's end is not refused");
        ensure!(refused(&[0, usize::MAX - 4095]).await, "a place beyond all memory is not refused");
        ensure!(refused(&[0, 2048]).await, "overlapping places of one batch are not refused");
        let alignment = cx.alignment() as usize;
        ensure!(
            alignment == 1 || refused(&[0, 8192 + alignment / 2]).await,
            "a place that is not aligned is not refused"
        );
        let held = cx.read_into(&spans, second, &[0, 16_384]).await;
        ensure!(
            held.is_ok() && refused(&[16_384, 32_768]).await,
            "a place whose bytes are in use is not refused"
        );
        drop(held);
        ensure!(!refused(&[16_384, 32_768]).await, "a place is refused although it was released");
        // The places of a dropped future stay in use until the device has finished its reads.
        for _ in 0..20 {
            {
                let mut reading = pin!(cx.read_into(&spans, second, &[0, 16_384]));
                let polled = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                ensure!(!matches!(polled, std::task::Poll::Ready(Err(_))), "a read into a region fails");
            }
            while refused(&[0, 16_384]).await {
                read_and_compare(&cx, &[Span::at(5000, 100)]).await?;
            }
        }
        read_and_compare(&cx, &spans).await
    })
}

pub(super) fn streams(tier: &Arc<dyn Tier>, share: QueryShare) -> Outcome {
    run_all(&mut engine(tier, 8)?, share.count(10), 3, |cx, seed| async move {
        let mut random = SplitMix64::new(seed, 4);
        let mut stream = cx.stream();
        let mut spans = Vec::new();
        let mut seen = Vec::new();
        for round in 0..60 {
            // Further reads are pushed while earlier ones arrive.
            if round < 40 {
                let span = span(&mut random, 10_000);
                let place = stream.push(span);
                ensure!(place as usize == spans.len(), "read {} has number {place}", spans.len());
                spans.push(span);
                seen.push(false);
            }
            if round % 3 != 0 || round >= 40 {
                match stream.next().await {
                    None => ensure!(!seen.contains(&false), "a stream ends before its last read"),
                    Some(Err(e)) => return Err(Breach(format!("a stream's read fails: {e}"))),
                    Some(Ok(arrived)) => {
                        let place = arrived.place as usize;
                        ensure!(
                            place < spans.len() && !seen[place],
                            "read {place} arrived twice or is unknown"
                        );
                        seen[place] = true;
                        ensure!(arrived.bytes().len() == spans[place].len as usize, "wrong length");
                        let wrong = first_difference(spans[place].offset, arrived.bytes());
                        ensure!(wrong.is_none(), "{:?}: wrong byte at {wrong:?}", spans[place]);
                    }
                }
            }
        }
        while let Some(arrived) = stream.next().await {
            ensure!(arrived.is_ok(), "a stream's read fails");
        }
        Ok(())
    })
}

/// Starts reads and drops them at once. Later reads must be correct although their buffers are scarce.
pub(super) fn dropped_futures(tier: &Arc<dyn Tier>, share: QueryShare) -> Outcome {
    let options = EngineOptions { depth: 8, buffer_budget_bytes: 256 << 10, ..EngineOptions::default() };
    let mut engine = Engine::new(tier.clone(), options)?;
    run_all(&mut engine, share.count(40), 6, |cx, seed| async move {
        let mut random = SplitMix64::new(seed, 5);
        for round in 0..10 {
            {
                let spans: Vec<_> = (0..4).map(|_| span(&mut random, 8000)).collect();
                let mut reading = pin!(cx.read(&spans));
                let polled = reading.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                ensure!(!matches!(polled, std::task::Poll::Ready(Err(_))), "a read fails");
            }
            let mut stream = cx.stream();
            for _ in 0..4 {
                stream.push(span(&mut random, 8000));
            }
            if round % 2 == 0 {
                ensure!(matches!(stream.next().await, Some(Ok(_))), "a stream's read fails");
            }
            drop(stream);
            let spans: Vec<_> = (0..3).map(|_| span(&mut random, 8000)).collect();
            read_and_compare(&cx, &spans).await?;
        }
        Ok(())
    })
}

pub(super) fn cancelled_runs(tier: &Arc<dyn Tier>, share: QueryShare) -> Outcome {
    let mut engine = engine(tier, 8)?;
    for round in 0..share.count(10) {
        let cancel = AtomicBool::new(false);
        let (mut seed, mut ended) = (0, 0);
        let next = |cx: &Cx| {
            seed += 1;
            Some(walk(cx.clone(), seed))
        };
        let sink = |_: Outcome| {
            ended += 1;
            cancel.store(ended > round * 2, Ordering::Relaxed);
        };
        let control = Control { cancel: Some(&cancel), deadline: None };
        let outcome = engine.run(6, next, sink, control);
        ensure!(matches!(outcome, Err(RunError::Cancelled)), "a cancelled run ends with {outcome:?}");
        run_all(&mut engine, share.count(8), 4, walk)?;
    }
    Ok(())
}

pub(super) fn more_reads_than_depth(tier: &Arc<dyn Tier>, share: QueryShare) -> Outcome {
    run_all(&mut engine(tier, 2)?, share.count(3), 3, |cx, seed| async move {
        let mut random = SplitMix64::new(seed, 6);
        let spans: Vec<_> = (0..500).map(|_| span(&mut random, 4000)).collect();
        read_and_compare(&cx, &spans).await
    })
}

pub(super) fn tiny_tiers(make: Make<'_>) -> Outcome {
    for len in [0, 1, 7, 512, 513, 4096] {
        let tier = make(content(len));
        ensure!(tier.len() == len as u64, "length {} instead of {len}", tier.len());
        run_all(&mut engine(&tier, 4)?, 2, 2, |cx, _| async move {
            let beyond = Span::at(len as u64, 1);
            let refused = cx.read(&[beyond]).await.map(|_| ());
            let out_of_range = matches!(refused, Err(ReadError::OutOfRange { .. }));
            ensure!(out_of_range, "{beyond:?} of a tier of {len} bytes: {refused:?}");
            if len > 0 {
                read_and_compare(&cx, &[Span::at(0, len as u32), Span::at(len as u64 - 1, 1)]).await?;
            }
            read_and_compare(&cx, &[]).await
        })?;
    }
    Ok(())
}

pub(super) fn damaged_byte(make: MakeFailing<'_>) -> Outcome {
    const BAD: u64 = 1_000_000;
    let tier = make(content(LEN), BAD);
    run_all(&mut engine(&tier, 8)?, 12, 4, |cx, seed| async move {
        let bad = Span::at(BAD - 1000, 2000);
        if seed % 2 == 0 {
            return read_elsewhere(&cx, seed, BAD).await;
        }
        let failed = cx.read(&[Span::at(0, 100), bad, Span::at(200_000, 100)]).await.map(|_| ());
        let device =
            matches!(failed, Err(ReadError::Device { offset, len: 2000, .. }) if offset == bad.offset);
        ensure!(device, "reading a damaged byte: {failed:?}");
        let mut stream = cx.stream();
        let spans = [Span::at(0, 5000), bad, Span::at(200_000, 5000), Span::at(300_000, 5000)];
        for span in spans {
            stream.push(span);
        }
        let (mut good, mut wrong) = (0, 0);
        while let Some(arrived) = stream.next().await {
            match arrived {
                Ok(arrived) => {
                    let at = spans[arrived.place as usize].offset;
                    ensure!(
                        first_difference(at, arrived.bytes()).is_none(),
                        "wrong bytes in a read without the damaged byte"
                    );
                    good += 1;
                }
                Err(_) => wrong += 1,
            }
        }
        ensure!((good, wrong) == (3, 1), "{good} reads arrived and {wrong} failed of 3 and 1");
        read_elsewhere(&cx, seed, BAD).await
    })
}

/// Reads random spans that do not touch the byte at `bad`.
async fn read_elsewhere(cx: &Cx, seed: u64, bad: u64) -> Outcome {
    let mut random = SplitMix64::new(seed, 7);
    for _ in 0..20 {
        let span = span(&mut random, 5000);
        // Alignment may widen a read by up to a page on either side.
        if span.offset > bad + 8192 || span.end() + 8192 < bad {
            read_and_compare(cx, &[span]).await?;
        }
    }
    Ok(())
}
