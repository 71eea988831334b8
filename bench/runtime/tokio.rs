// SPDX-License-Identifier: Apache-2.0
//! An echo server on tokio, a future for each connection: on one thread, or on as many workers as
//! it is told. Relies on the crate alone.
//!
//! kind: stackless
//! needs: cargo-web/cargo
//! registry: crates.io tokio 1.48.0
//! peer: tokio
//! build: bench/peers/rust/build.sh tokio echo "$OUT"

use std::net::Ipv4Addr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;

const ABSENT: i32 = 77; // exit status
const BUFFER_BYTES: usize = 1024;
const BACKLOG: u32 = 4096;

async fn serve(mut stream: TcpStream) {
    let mut buffer = vec![0; BUFFER_BYTES];
    stream.set_nodelay(true).expect("no TCP_NODELAY");
    while let Ok(bytes) = stream.read(&mut buffer).await {
        if bytes == 0 || stream.write_all(&buffer[..bytes]).await.is_err() {
            break;
        }
    }
}

async fn listen() {
    let socket = TcpSocket::new_v4().expect("no socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("can't bind");
    let listener = socket.listen(BACKLOG).expect("can't listen");
    println!("port {}", listener.local_addr().expect("no port").port());
    loop {
        let (stream, _) = listener.accept().await.expect("accept fails");
        tokio::spawn(serve(stream));
    }
}

fn main() {
    // The first argument is the kind that build.sh has in its script.
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    if arguments.len() != 2 || arguments[0] != "echo" {
        std::process::exit(ABSENT);
    }
    let threads: usize = arguments[1].parse().expect("threads");
    let mut builder = if threads == 1 {
        Builder::new_current_thread()
    } else {
        Builder::new_multi_thread()
    };
    if threads > 1 {
        builder.worker_threads(threads);
    }
    builder.enable_io().build().expect("no runtime").block_on(async {
        tokio::spawn(listen()).await.expect("the listener has ended");
    });
}
