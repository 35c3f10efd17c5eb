//! The harness against plain commands: what the other tests rely on when something goes wrong.

mod harness;

use std::time::Duration;

use harness::{Listening, Pair, Place, Status, Tool, pass_together, run, stage};

fn plain(line: &str) -> Tool {
    Tool::new(line).bare()
}

fn python(script: &str, port: u16) -> Tool {
    plain("python3 -c").arg(script).arg(port.to_string())
}

/// A server that says back what it is told, once.
const ECHO_SERVER: &str = "
import socket, sys, time
time.sleep(0.3)
s = socket.create_server(('127.0.0.1', int(sys.argv[1])))
c, _ = s.accept()
c.sendall(c.recv(100))
print('served')
";
const ECHO_CLIENT: &str = "
import socket, sys
c = socket.create_connection(('127.0.0.1', int(sys.argv[1])))
c.sendall(b'hello')
print(c.recv(100).decode())
";

fn echo() -> Pair {
    let port = Place::new().port;
    Pair::new(
        python(ECHO_SERVER, port),
        python(ECHO_CLIENT, port),
        Listening::Tcp(port),
    )
    .limit(20)
}

#[test]
fn the_client_starts_when_the_server_listens() {
    let report = run(echo());
    assert!(report.succeeded(), "\n{report}");
    assert_eq!(
        (report.server.stdout.trim(), report.client.stdout.trim()),
        ("served", "hello")
    );
}

#[test]
fn pairs_run_together() {
    pass_together((0..4).map(|_| echo()).collect());
}

#[test]
fn a_failing_side_fails_the_pair_and_both_are_shown() {
    let port = Place::new().port;
    let client = plain("sh -c").arg("echo out; echo err >&2; exit 3");
    let report = run(Pair::new(python(ECHO_SERVER, port), client, Listening::Tcp(port)).limit(1));
    assert!(!report.succeeded());
    assert_eq!(
        (report.client.status, report.server.status),
        (Status::Code(3), Status::TimedOut)
    );
    let shown = report.to_string();
    for words in ["stdout: out", "stderr: err", "TimedOut after", "Code(3) after"] {
        assert!(shown.contains(words), "'{words}' is missing\n{shown}");
    }
}

#[test]
fn a_server_that_ends_early_does_not_hold_the_client() {
    let report = run(Pair::new(plain("false"), plain("true"), Listening::ConnectionManager));
    assert!(!report.succeeded());
    // Its own end, not the harness's patience with it.
    assert_eq!(report.server.status, Status::Code(1));
}

#[test]
fn a_process_is_killed_at_its_limit() {
    let outcome = plain("sleep 60")
        .spawn(stage())
        .expect("start")
        .wait(Duration::from_millis(300));
    assert_eq!(outcome.status, Status::TimedOut);
}

#[test]
fn a_server_that_serves_for_ever_is_stopped() {
    let port = Place::new().port;
    let server = plain("python3 -m http.server --bind 127.0.0.1").arg(port.to_string());
    let client = python(
        "import sys, urllib.request as u; u.urlopen(f'http://127.0.0.1:{sys.argv[1]}/').read(1)",
        port,
    );
    let report = run(Pair::new(server, client, Listening::Tcp(port)).stopping_server());
    assert!(report.succeeded(), "\n{report}");
    assert_eq!(report.server.status, Status::Signal(15), "\n{report}");
}

#[test]
fn nothing_outlives_its_handle() {
    let running = plain("sleep 60").spawn(stage()).expect("start");
    let pid = running.pid();
    drop(running);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[test]
fn tools_run_unprivileged() {
    let outcome = plain("id -u")
        .spawn(stage())
        .expect("start")
        .wait(Duration::from_secs(5));
    assert!(outcome.succeeded(), "{outcome}");
    assert_ne!(outcome.stdout.trim(), "0");
}
