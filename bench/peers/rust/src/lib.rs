// SPDX-License-Identifier: Apache-2.0
//! The workloads of the peers in Rust, over a trait that each crate's program fills in; generic
//! throughout, so that nothing stands between a workload and the crate's own resume and suspend.
//! Relies on the standard library alone.

mod skynet;

use std::arch::asm;
use std::time::Instant;

// ---- What a crate fills in ---------------------------------------------------------------------

/// What a body suspends itself with.
pub trait Yield {
    fn suspend(&mut self);
}

/// What a coroutine runs; its value is what the last resume returns.
pub trait Body: 'static {
    fn run<Y: Yield>(self, own: &mut Y) -> u64;
}

/// Dropping one destroys it; a suspended one is unwound.
pub trait Coroutine: Sized + 'static {
    fn new<B: Body>(stack_bytes: usize, body: B) -> Self;
    /// A new one on the stack of this one, which has ended.
    fn renew<B: Body>(self, body: B) -> Self;
    /// None while it suspends itself, then the value of its body.
    fn resume(&mut self) -> Option<u64>;
}

// ---- Bodies ------------------------------------------------------------------------------------

/// Suspends itself so many times, and returns how often it did.
struct Flat(u64);

impl Body for Flat {
    fn run<Y: Yield>(self, own: &mut Y) -> u64 {
        let mut yields = 0;
        while yields < self.0 {
            yields += 1;
            own.suspend();
        }
        yields
    }
}

/// The same from four calls deep; the empty assembly after each keeps it from being a jump.
struct Deep(u64);

macro_rules! call {
    ($name:ident, $callee:path) => {
        #[inline(never)]
        fn $name<Y: Yield>(own: &mut Y) {
            $callee(own);
            unsafe { asm!("") };
        }
    };
}
call!(call_4, Yield::suspend);
call!(call_3, call_4);
call!(call_2, call_3);
call!(call_1, call_2);

impl Body for Deep {
    fn run<Y: Yield>(self, own: &mut Y) -> u64 {
        let mut yields = 0;
        while yields < self.0 {
            yields += 1;
            call_1(own);
        }
        yields
    }
}

/// The same with eight integers and eight doubles alive across each yield. The compiler can't
/// see through the empty assembly, so each of them stays a value of its own.
struct Live(u64);

impl Body for Live {
    fn run<Y: Yield>(self, own: &mut Y) -> u64 {
        let mut integers = [1u64, 2, 3, 4, 5, 6, 7, 8];
        let mut doubles = [1f64, 2., 3., 4., 5., 6., 7., 8.];
        for round in 0..self.0 {
            own.suspend();
            for integer in &mut integers {
                *integer = integer.wrapping_add(round);
                unsafe { asm!("/* {0} */", inout(reg) * integer) };
            }
            for double in &mut doubles {
                *double += 1.;
                unsafe { asm!("/* {0} */", inout(xmm_reg) * double) };
            }
        }
        let sum = integers
            .iter()
            .fold(0, |sum: u64, &integer| sum.wrapping_add(integer));
        doubles.iter().fold(sum, |sum, &double| {
            sum.wrapping_mul(31).wrapping_add(double as u64)
        })
    }
}

/// Runs a body with no coroutine: what it returns then, it must return from one.
struct Never;

impl Yield for Never {
    fn suspend(&mut self) {}
}

// ---- Workloads ---------------------------------------------------------------------------------

// What is measured has been done once before, so that allocators and caches are warm.

const STACK_BYTES: usize = 16 << 10;
const WARM_UP_CT: u64 = 1000;
const TABLE_CYCLES: u64 = 20; // of create, end, drop, kill, for their means

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

fn resume_all<C: Coroutine>(all: &mut [C]) {
    for co in all {
        check(co.resume().is_none(), "a coroutine ended too early");
    }
}

fn end_all<C: Coroutine>(all: &mut [C], value: u64) {
    for co in all {
        check(co.resume() == Some(value), "a resume was lost");
    }
}

/// The first resume, which starts it, and the last, which ends it, are not measured.
fn switch<C: Coroutine, B: Body>(body: fn(u64) -> B, ct: u64) {
    let value = body(ct + 1).run(&mut Never);
    let mut co = [C::new(STACK_BYTES, body(ct + 1))];
    resume_all(&mut co);
    let ns = ns_each(ct, || (0..ct).for_each(|_| resume_all(&mut co)));
    end_all(&mut co, value);
    println!("ns {ns:.3}");
}

/// Leaves the flag of an inexact result in this thread's MXCSR.
fn divide_inexactly() {
    let (one, three) = (1f64, 3f64);
    unsafe {
        asm!("divsd {0}, {1}", inout(xmm_reg) one => _, in(xmm_reg) three);
    }
}

fn create_all<C: Coroutine>(ct: u64, stack_bytes: usize, yields: u64) -> (Vec<C>, f64) {
    let mut all = Vec::with_capacity(ct as usize);
    let ns = ns_each(ct, || {
        (0..ct).for_each(|_| all.push(C::new(stack_bytes, Flat(yields))))
    });
    (all, ns)
}

/// Create, one resume to the end, drop, one after the other.
fn life<C: Coroutine>(ct: u64) {
    let lives = |ct| {
        ns_each(ct, || {
            (0..ct).for_each(|_| end_all(&mut [C::new(STACK_BYTES, Flat(0))], 0))
        })
    };
    lives(WARM_UP_CT);
    println!("ns {:.3}", lives(ct));
}

const METRICS: [&str; 5] = ["create_ns", "switch_ns", "last_ns", "destroy_ns", "kill_ns"];
const SWITCH: usize = 1;

fn cycle<C: Coroutine>(ct: u64, switches: u64, stack_bytes: usize) -> [f64; 5] {
    let (mut all, create) = create_all::<C>(ct, stack_bytes, switches);
    let switch = ns_each(ct * switches, || {
        (0..switches).for_each(|_| resume_all(&mut all))
    });
    let last = ns_each(ct, || end_all(&mut all, switches));
    let destroy = ns_each(ct, || drop(all));
    let (mut all, _) = create_all::<C>(ct, stack_bytes, 2);
    resume_all(&mut all);
    let kill = ns_each(ct, || drop(all));
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
    let (mut all, _) = create_all::<C>(ct, stack_bytes, 2);
    resume_all(&mut all);
    drop(all);
    let (mut all, create) = create_all::<C>(ct, stack_bytes, rounds + 1);
    resume_all(&mut all);
    let switch = ns_each(ct * rounds, || {
        (0..rounds).for_each(|_| resume_all(&mut all))
    });
    end_all(&mut all, rounds + 1);
    println!("create_ns {create:.3}\nswitch_ns {switch:.3}");
}

fn skynet(run: fn(u64) -> u64, leaves: u64) {
    let start = Instant::now();
    let sum = run(leaves);
    let ms = start.elapsed().as_secs_f64() * 1e3;
    check(sum == leaves * (leaves - 1) / 2, "skynet's sum is wrong");
    println!("ms {ms:.3}");
}

fn number(word: &str) -> u64 {
    word.parse()
        .ok()
        .filter(|&number| number > 0)
        .unwrap_or_else(|| {
            check(
                false,
                "the arguments of a workload are numbers, of 1 at least",
            );
            0
        })
}

/// A panic says its one line of words, with no backtrace after it.
pub fn main<C: Coroutine>() {
    std::panic::set_hook(Box::new(|words| eprintln!("peer: {words}")));
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["switch", ct] => switch::<C, _>(Flat, number(ct)),
        ["switch_inexact", ct] => {
            divide_inexactly();
            switch::<C, _>(Flat, number(ct));
        }
        ["switch_deep", ct] => switch::<C, _>(Deep, number(ct)),
        ["switch_live", ct] => switch::<C, _>(Live, number(ct)),
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
