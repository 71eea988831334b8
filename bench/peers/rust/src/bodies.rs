// SPDX-License-Identifier: Apache-2.0
//! The bodies of measured coroutines. They count in memory, as the C ones do. Relies on one thread
//! running all of them.

use std::arch::asm;

/// A body's way to suspend itself.
pub trait Yield {
    fn suspend(&mut self);
}

/// A function that a coroutine runs.
pub trait Body: Copy + 'static {
    fn run<Y: Yield>(self, own: &mut Y);
}

pub(crate) static mut YIELDS: u64 = 0; // compared with the resumes at the end
pub(crate) static mut IS_OVER: bool = false; // bodies that end return at the next resume
pub(crate) static mut LIVE_SUM: f64 = 0.;

/// Lets the compiler know that any switch may change these.
pub(crate) fn share() {
    unsafe {
        let (yields, is_over) = (&raw mut YIELDS, &raw mut IS_OVER);
        asm!("/* {0} {1} {2} */", in(reg) yields, in(reg) is_over, in(reg) &raw mut LIVE_SUM);
    }
}

#[derive(Clone, Copy)]
pub struct AtOnce;

impl Body for AtOnce {
    fn run<Y: Yield>(self, _: &mut Y) {
        unsafe { YIELDS += 1 };
    }
}

#[derive(Clone, Copy)]
pub struct Flat;

impl Body for Flat {
    fn run<Y: Yield>(self, own: &mut Y) {
        loop {
            unsafe { YIELDS += 1 };
            own.suspend();
        }
    }
}

#[derive(Clone, Copy)]
pub struct UntilOver;

impl Body for UntilOver {
    fn run<Y: Yield>(self, own: &mut Y) {
        while unsafe { !IS_OVER } {
            unsafe { YIELDS += 1 };
            own.suspend();
        }
    }
}

/// Flat from four calls deep; the empty assembly after each call keeps it from being a jump.
#[derive(Clone, Copy)]
pub struct Deep;

#[inline(never)]
fn call_4<Y: Yield>(own: &mut Y) {
    own.suspend();
    unsafe { YIELDS += 1 };
    unsafe { asm!("") };
}

macro_rules! call {
    ($name:ident, $callee:path) => {
        #[inline(never)]
        fn $name<Y: Yield>(own: &mut Y) {
            $callee(own);
            unsafe { asm!("") };
        }
    };
}
call!(call_3, call_4);
call!(call_2, call_3);
call!(call_1, call_2);

impl Body for Deep {
    fn run<Y: Yield>(self, own: &mut Y) {
        loop {
            call_1(own);
            unsafe { asm!("") };
        }
    }
}

/// Eight integers and eight doubles, each in a register of its own before and after each yield;
/// sixteen additions between two yields.
#[derive(Clone, Copy)]
pub struct Live;

const LIVE_CT: usize = 8;

#[inline(always)]
fn in_registers(integers: &mut [u64; LIVE_CT], doubles: &mut [f64; LIVE_CT]) {
    for (integer, double) in integers.iter_mut().zip(doubles) {
        unsafe {
            asm!(
                "/* {0} {1} */",
                inout(reg) * integer,
                inout(xmm_reg) * double
            )
        };
    }
}

impl Live {
    /// The value of LIVE_SUM after so many yields.
    pub fn sum_after(yields: u64) -> f64 {
        let sum_of = |k: usize| 2. * (k as f64 + yields as f64 * (k + 1) as f64);
        (0..LIVE_CT).map(sum_of).sum()
    }
}

impl Body for Live {
    fn run<Y: Yield>(self, own: &mut Y) {
        let mut integers = [0u64, 1, 2, 3, 4, 5, 6, 7];
        let mut doubles = [0f64, 1., 2., 3., 4., 5., 6., 7.];
        while unsafe { !IS_OVER } {
            for k in 0..LIVE_CT {
                integers[k] = integers[k].wrapping_add(k as u64 + 1);
                doubles[k] += (k + 1) as f64;
            }
            in_registers(&mut integers, &mut doubles);
            unsafe { YIELDS += 1 };
            own.suspend();
            in_registers(&mut integers, &mut doubles);
        }
        let both = integers.iter().zip(doubles);
        unsafe { LIVE_SUM = both.map(|(&integer, double)| integer as f64 + double).sum() };
    }
}
