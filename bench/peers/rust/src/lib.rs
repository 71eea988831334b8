// SPDX-License-Identifier: Apache-2.0
//! The workloads of the peers in Rust, over a trait that each crate's program fills in; generic
//! throughout, so that nothing stands between a workload and the crate's own resume and suspend.
//! Bodies and workloads do the same work as the C ones in bodies.h and workloads.h. Relies on the
//! standard library alone.

mod bodies;
mod pool;
mod skynet;

pub use bodies::{Body, Yield};
pub use pool::Pool;

use bodies::{AtOnce, Deep, Flat, Live, UntilOver, IS_OVER, LIVE_SUM, YIELDS};
use std::arch::asm;
use std::time::Instant;

/// Dropping one destroys it; a suspended one is unwound if the crate does that.
pub trait Coroutine: Sized + 'static {
    /// Makes one that has not started.
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self;
    /// Returns when it suspends itself or ends.
    fn resume(&mut self);
}

// ---- Counts and checks -------------------------------------------------------------------------

const STACK_BYTES: usize = 16 << 10;
const TABLE_CYCLES: u64 = 20; // of create, end, destroy, kill, for their means

// Each workload is done once before it is measured, so that allocators and caches are warm.
const WARM_UP_CT: u64 = 1000;

pub(crate) fn check(holds: bool, words: &str) {
    if !holds {
        eprintln!("peer: {words}");
        std::process::exit(1);
    }
}

/// Runs `work` and returns the ns that it took, divided by `ct`.
fn ns_each(ct: u64, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / ct as f64
}

/// The same for work in which coroutines yield `ct` times.
fn ns_each_yield(ct: u64, work: impl FnOnce()) -> f64 {
    unsafe { YIELDS = 0 };
    let ns = ns_each(ct, work);
    check(unsafe { YIELDS } == ct, "a resume was lost");
    ns
}

// ---- Switch ------------------------------------------------------------------------------------

/// Holds the coroutine in a variable of its own, so that the loop adds as little as can be to what
/// is measured.
#[inline(never)]
fn resume_often<C: Coroutine>(mut co: C, ct: u64) -> C {
    for _ in 0..ct {
        co.resume();
    }
    co
}

/// `disturb` is called while the coroutine is suspended. The first resumes are not measured.
fn switch<C: Coroutine, B: Body>(body: B, ct: u64, disturb: fn()) {
    let mut co = Some(resume_often(C::new(STACK_BYTES, body), WARM_UP_CT));
    disturb();
    let ns = ns_each_yield(ct, || co = co.take().map(|co| resume_often(co, ct)));
    println!("ns {ns:.3}");
}

/// Leaves the flag of an inexact result in this thread's MXCSR.
fn divide_inexactly() {
    let (one, three) = (1f64, 3f64);
    unsafe {
        asm!("divsd {0}, {1}", inout(xmm_reg) one => _, in(xmm_reg) three);
    }
}

fn switch_live<C: Coroutine>(ct: u64) {
    let mut co = Some(resume_often(C::new(STACK_BYTES, Live), WARM_UP_CT));
    let ns = ns_each_yield(ct, || co = co.take().map(|co| resume_often(co, ct)));
    unsafe { IS_OVER = true };
    co.iter_mut().for_each(C::resume);
    let expected = Live::sum_after(ct + WARM_UP_CT);
    check(unsafe { LIVE_SUM } == expected, "a live value is wrong");
    println!("ns {ns:.3}");
}

// ---- Lives -------------------------------------------------------------------------------------

/// Create, one resume to the end, destroy, one after the other.
fn life<C: Coroutine>(ct: u64) {
    let lives = |ct| {
        ns_each_yield(ct, || {
            (0..ct).for_each(|_| C::new(STACK_BYTES, AtOnce).resume())
        })
    };
    lives(WARM_UP_CT);
    println!("ns {:.3}", lives(ct));
}

fn create_all<C: Coroutine>(body: impl Body, ct: u64, stack_bytes: usize) -> (Vec<C>, f64) {
    let mut all = Vec::with_capacity(ct as usize);
    let ns = ns_each(ct, || {
        (0..ct).for_each(|_| all.push(C::new(stack_bytes, body)))
    });
    (all, ns)
}

fn resume_all<C: Coroutine>(all: &mut [C], rounds: u64) -> f64 {
    ns_each(all.len() as u64 * rounds, || {
        (0..rounds).for_each(|_| all.iter_mut().for_each(C::resume))
    })
}

const METRICS: [&str; 5] = ["create_ns", "switch_ns", "last_ns", "destroy_ns", "kill_ns"];
const SWITCH: usize = 1;

fn cycle<C: Coroutine>(ct: u64, switches: u64, stack_bytes: usize) -> [f64; 5] {
    unsafe { (YIELDS, IS_OVER) = (0, false) };
    let (mut all, create) = create_all::<C>(UntilOver, ct, stack_bytes);
    let switch = resume_all(&mut all, switches);
    check(unsafe { YIELDS } == ct * switches, "a resume was lost");
    unsafe { IS_OVER = true };
    let last = resume_all(&mut all, 1);
    let destroy = ns_each(ct, || drop(all));
    unsafe { IS_OVER = false };
    let (mut all, _) = create_all::<C>(UntilOver, ct, stack_bytes);
    resume_all(&mut all, 1);
    let kill = ns_each(ct, || drop(all));
    let yields = ct * (switches + 1);
    check(unsafe { YIELDS } == yields, "a coroutine was lost");
    [create, switch, last, destroy, kill]
}

fn table<C: Coroutine>(ct: u64, switches: u64, stack_bytes: usize) {
    cycle::<C>(ct, 1, stack_bytes);
    let mut means = [0.; 5];
    for _ in 0..TABLE_CYCLES {
        let ns = cycle::<C>(ct, 1, stack_bytes);
        (0..means.len()).for_each(|i| means[i] += ns[i] / TABLE_CYCLES as f64);
    }
    means[SWITCH] = cycle::<C>(ct, switches, stack_bytes)[SWITCH];
    for (metric, mean) in METRICS.iter().zip(means) {
        println!("{metric} {mean:.3}");
    }
}

/// The round that starts them is not measured.
fn many<C: Coroutine>(ct: u64, stack_bytes: usize, rounds: u64) {
    let (mut all, _) = create_all::<C>(Flat, ct, stack_bytes);
    resume_all(&mut all, 1);
    drop(all);
    let (mut all, create) = create_all::<C>(Flat, ct, stack_bytes);
    resume_all(&mut all, 1);
    let switch = ns_each_yield(ct * rounds, || {
        resume_all(&mut all, rounds);
    });
    println!("create_ns {create:.3}\nswitch_ns {switch:.3}");
}

// ---- Command line ------------------------------------------------------------------------------

fn skynet(run: fn(u64) -> u64, leaves: u64) {
    let mut rest = leaves;
    while rest % skynet::CHILDREN == 0 {
        rest /= skynet::CHILDREN;
    }
    check(rest == 1, "the leaves of skynet are a power of ten");
    let start = Instant::now();
    let sum = run(leaves);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    check(sum == leaves * (leaves - 1) / 2, "skynet's sum is wrong");
    println!("ms {ms:.3}");
}

fn number(word: &str) -> u64 {
    let number = word.parse().unwrap_or(0);
    check(
        number > 0,
        "the arguments of a workload are numbers, of 1 at least",
    );
    number
}

fn run<C: Coroutine>(words: &[&str]) {
    match *words {
        ["switch", ct] => switch::<C, _>(Flat, number(ct), || {}),
        ["switch_inexact", ct] => switch::<C, _>(Flat, number(ct), divide_inexactly),
        ["switch_deep", ct] => switch::<C, _>(Deep, number(ct), || {}),
        ["switch_live", ct] => switch_live::<C>(number(ct)),
        ["life", ct] => life::<C>(number(ct)),
        ["table", ct, switches, bytes] => {
            table::<C>(number(ct), number(switches), number(bytes) as usize)
        }
        ["many", ct, bytes, rounds] => {
            many::<C>(number(ct), number(bytes) as usize, number(rounds))
        }
        ["skynet", "nested"] => skynet(skynet::nested::<C>, 1_000_000),
        ["skynet", "nested", leaves] => skynet(skynet::nested::<C>, number(leaves)),
        ["skynet", "scheduler"] => skynet(skynet::scheduled::<C>, 1_000_000),
        ["skynet", "scheduler", leaves] => skynet(skynet::scheduled::<C>, number(leaves)),
        _ => std::process::exit(77),
    }
}

/// `PROGRAM fresh|pool WORKLOAD ARGS`: each coroutine has a new stack, or one from a pool.
pub fn main<Fresh: Coroutine, Pooled: Coroutine>() {
    // A panic says its one line of words, with no backtrace after it.
    std::panic::set_hook(Box::new(|words| eprintln!("peer: {words}")));
    bodies::share();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["fresh", ref words @ ..] => run::<Fresh>(words),
        ["pool", ref words @ ..] => run::<Pooled>(words),
        _ => check(false, "the first argument is fresh or pool"),
    }
}
