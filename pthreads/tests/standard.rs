// SPDX-License-Identifier: Apache-2.0
//! What Rust's standard library has for threads, which wait by futexes of its own. Each test says
//! what holds, with many threads, most of which wait.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Barrier, Condvar, Mutex, Once, RwLock};
use std::thread;
use std::time::{Duration, Instant};

const CT_THREADS: usize = 40;

/// Runs a function in many threads, with their numbers, and returns what it returns.
fn run_many<T: Send>(function: impl Fn(usize) -> T + Sync) -> Vec<T> {
    thread::scope(|scope| {
        let function = &function;
        let threads: Vec<_> = (0..CT_THREADS)
            .map(|number| scope.spawn(move || function(number)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn pause() {
    thread::sleep(Duration::from_micros(100));
}

fn channels_pass_values() {
    let (to_sum, sums) = mpsc::channel();
    let (to_all, all) = mpsc::sync_channel(0); // each send waits for who receives
    let all = Arc::new(Mutex::new(all));
    let workers: Vec<_> = (0..CT_THREADS)
        .map(|_| {
            let (to_sum, all) = (to_sum.clone(), Arc::clone(&all));
            thread::spawn(move || {
                let mut sum = 0;
                loop {
                    let value: Result<usize, _> = all.lock().unwrap().recv();
                    match value {
                        Ok(number) => sum += number,
                        Err(_) => break,
                    }
                    pause();
                }
                to_sum.send(sum).unwrap();
            })
        })
        .collect();
    drop(to_sum);
    assert!(matches!(
        sums.recv_timeout(Duration::from_millis(1)),
        Err(mpsc::RecvTimeoutError::Timeout)
    ));
    for number in 0..1000 {
        to_all.send(number).unwrap();
    }
    drop(to_all);
    assert_eq!(sums.iter().sum::<usize>(), 499_500);
    workers
        .into_iter()
        .for_each(|worker| worker.join().unwrap());
}

fn conditions_pass_a_turn() {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    run_many(|number| {
        let mut now = changed
            .wait_while(turn.lock().unwrap(), |now| *now != number)
            .unwrap();
        *now += 1;
        changed.notify_all();
    });
    let (mutex, never) = (Mutex::new(()), Condvar::new());
    let start = Instant::now();
    let limit = Duration::from_millis(2);
    let (_guard, result) = never
        .wait_timeout_while(mutex.lock().unwrap(), limit, |_| true)
        .unwrap();
    assert!(result.timed_out() && start.elapsed() >= limit);
}

fn parked_threads_go_on() {
    let ct_parked = AtomicUsize::new(0);
    let may_go = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..CT_THREADS)
            .map(|_| {
                scope.spawn(|| {
                    thread::current().unpark(); // kept for one park
                    thread::park();
                    thread::park_timeout(Duration::from_millis(1));
                    ct_parked.fetch_add(1, Ordering::SeqCst);
                    while !may_go.load(Ordering::SeqCst) {
                        thread::park();
                    }
                })
            })
            .collect();
        while ct_parked.load(Ordering::SeqCst) != CT_THREADS {
            thread::yield_now();
        }
        may_go.store(true, Ordering::SeqCst);
        threads.iter().for_each(|thread| thread.thread().unpark());
    });
}

fn readers_share() {
    let pair = RwLock::new((0, 0));
    run_many(|number| {
        for _ in 0..20 {
            if number % 4 == 0 {
                let mut pair = pair.write().unwrap();
                pair.0 += 1;
                pause();
                pair.1 += 1;
            } else {
                let pair = pair.read().unwrap();
                let first = pair.0;
                pause();
                assert_eq!(first, pair.1);
            }
        }
    });
    assert_eq!(*pair.read().unwrap(), (200, 200));
}

fn barriers_complete_rounds() {
    let (barrier, ct_arrived, ct_leaders) = (
        Barrier::new(CT_THREADS),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    run_many(|_| {
        for round in 1..=20 {
            ct_arrived.fetch_add(1, Ordering::SeqCst);
            if barrier.wait().is_leader() {
                ct_leaders.fetch_add(1, Ordering::SeqCst);
            }
            assert!(ct_arrived.load(Ordering::SeqCst) >= round * CT_THREADS);
        }
    });
    assert_eq!(ct_leaders.load(Ordering::SeqCst), 20);
}

fn calls_once() {
    static ONCE: Once = Once::new();
    static CT_CALLS: AtomicUsize = AtomicUsize::new(0);
    run_many(|_| {
        ONCE.call_once(|| {
            pause();
            CT_CALLS.fetch_add(1, Ordering::SeqCst);
        });
        assert_eq!(CT_CALLS.load(Ordering::SeqCst), 1);
    });
}

/// Counts how often it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        pause();
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

static CT_DROPPED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static NUMBER: Cell<usize> = Cell::new(7);
    static TEXT: RefCell<String> = RefCell::new("initial".to_string());
    static COUNTED: Counted<'static> = Counted(&CT_DROPPED);
}

fn variables_are_of_a_thread() {
    let ids = run_many(|number| {
        assert_eq!(NUMBER.with(Cell::get), 7);
        TEXT.with(|text| assert_eq!(*text.borrow(), "initial"));
        COUNTED.with(|_| ());
        NUMBER.with(|own| own.set(number));
        TEXT.with(|text| *text.borrow_mut() = number.to_string());
        pause();
        assert_eq!(NUMBER.with(Cell::get), number);
        TEXT.with(|text| assert_eq!(*text.borrow(), number.to_string()));
        thread::current().id()
    });
    assert_eq!(CT_DROPPED.load(Ordering::SeqCst), CT_THREADS);
    assert_eq!(ids.into_iter().collect::<HashSet<_>>().len(), CT_THREADS);
}

/// A panic ends its thread alone, drops what it has, and poisons the locks that it holds.
fn panics_end_threads() {
    let (mutex, dropped) = (Arc::new(Mutex::new(0)), Arc::new(AtomicUsize::new(0)));
    std::panic::set_hook(Box::new(|_| ()));
    let threads: Vec<_> = (0..CT_THREADS)
        .map(|number| {
            let (mutex, dropped) = (Arc::clone(&mutex), Arc::clone(&dropped));
            let name = format!("thread {}", number);
            let run = move || {
                let _counted = Counted(&dropped);
                let caught = std::panic::catch_unwind(|| {
                    pause();
                    panic!("caught");
                });
                assert!(caught.is_err());
                let _guard = mutex.lock();
                assert_eq!(
                    thread::current().name(),
                    Some(&*format!("thread {}", number))
                );
                pause();
                panic!("{}", number);
            };
            let thread = thread::Builder::new().name(name).stack_size(256 * 1024);
            thread.spawn(run).unwrap()
        })
        .collect();
    for (number, thread) in threads.into_iter().enumerate() {
        let panic: Result<(), _> = thread.join();
        assert_eq!(
            *panic.unwrap_err().downcast::<String>().unwrap(),
            number.to_string()
        );
    }
    drop(std::panic::take_hook());
    assert_eq!(dropped.load(Ordering::SeqCst), CT_THREADS);
    assert!(mutex.is_poisoned());
}

fn sockets_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            for stream in listener.incoming().take(CT_THREADS) {
                scope.spawn(move || {
                    let mut stream = stream.unwrap();
                    let mut text = String::new();
                    stream.read_to_string(&mut text).unwrap();
                    stream.write_all(text.to_uppercase().as_bytes()).unwrap();
                });
            }
        });
        for number in 0..CT_THREADS {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(addr).unwrap();
                write!(stream, "client {}", number).unwrap();
                pause();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).unwrap();
                assert_eq!(text, format!("CLIENT {}", number));
            });
        }
    });
}

fn main() {
    channels_pass_values();
    conditions_pass_a_turn();
    parked_threads_go_on();
    readers_share();
    barriers_complete_rounds();
    calls_once();
    variables_are_of_a_thread();
    panics_end_threads();
    sockets_wait();
    println!("all held");
}
