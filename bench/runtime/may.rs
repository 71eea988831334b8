// SPDX-License-Identifier: Apache-2.0
//! An echo server on may, a stackful coroutine for each connection, on as many workers as it is
//! told. Relies on the crate alone.
//!
//! kind: stackful
//! needs: cargo-web/cargo
//! registry: crates.io may 0.3.51
//! peer: may (Rust)
//! build: bench/peers/rust/build.sh may echo "$OUT"

use may::net::{TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::Ipv4Addr;

const ABSENT: i32 = 77; // exit status
const BUFFER_BYTES: usize = 1024;

fn serve(mut stream: TcpStream) {
    let mut buffer = vec![0; BUFFER_BYTES];
    stream.set_nodelay(true).expect("no TCP_NODELAY");
    while let Ok(bytes) = stream.read(&mut buffer) {
        if bytes == 0 || stream.write_all(&buffer[..bytes]).is_err() {
            break;
        }
    }
}

fn main() {
    // The first argument is the kind that build.sh has in its script.
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    if arguments.len() != 2 || arguments[0] != "echo" {
        std::process::exit(ABSENT);
    }
    may::config().set_workers(arguments[1].parse().expect("threads"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("can't listen");
    println!("port {}", listener.local_addr().expect("no port").port());
    for stream in listener.incoming() {
        let stream = stream.expect("accept fails");
        unsafe { may::coroutine::spawn(move || serve(stream)) };
    }
}
