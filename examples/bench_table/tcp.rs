//! One TCP connection over loopback.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Gbit/s of a connection written to and read from in chunks of that size.
pub(crate) fn stream(chunk: usize, span: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let sender = thread::spawn(move || -> io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        let buffer = vec![7_u8; chunk];
        let started = Instant::now();
        while started.elapsed() < span {
            stream.write_all(&buffer)?;
        }
        Ok(())
    });
    let (mut stream, _) = listener.accept()?;
    let mut buffer = vec![0_u8; chunk];
    let started = Instant::now();
    let mut received = 0_u64;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            count => received += count as u64,
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    sender.join().map_err(|_| io::Error::other("the sender panicked"))??;
    Ok(received as f64 * 8.0 / seconds / 1e9)
}
