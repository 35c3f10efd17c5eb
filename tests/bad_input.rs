//! Wrong values and missing things: one line that names them and what to do, and an exit status of its own.

mod harness;

use std::net::UdpSocket;
use std::time::Duration;

use harness::{Outcome, Place, Status, Tool, alone, stage};

/// One line on stderr, nothing on stdout, this status, and these words.
fn refused(outcome: &Outcome, status: i32, words: &[&str]) {
    assert_eq!(outcome.status, Status::Code(status), "{outcome}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome}");
    assert!(outcome.stdout.is_empty(), "{outcome}");
    for word in words {
        assert!(outcome.stderr.contains(word), "'{word}' is missing: {outcome}");
    }
}

const WRONG: [(&str, &str, &str); 14] = [
    ("--netdev", "ADVERB_NETDEV", "no-such-if"),
    ("--addr", "ADVERB_ADDR", "localhost"),
    ("--addr", "ADVERB_ADDR", "192.0.2.77"),
    ("--addr", "ADVERB_ADDR", "0.0.0.0"),
    ("--faults", "ADVERB_FAULTS", "drop"),
    ("--faults", "ADVERB_FAULTS", "drop=2"),
    ("--faults", "ADVERB_FAULTS", "drop=-0.1"),
    ("--faults", "ADVERB_FAULTS", "drop=NaN"),
    ("--faults", "ADVERB_FAULTS", "lose=0.1"),
    ("--pcap", "ADVERB_PCAP", "/no/such/directory/x.pcap"),
    ("--rcvbuf", "ADVERB_RCVBUF", "lots"),
    ("--rcvbuf", "ADVERB_RCVBUF", "-1"),
    ("--rcvbuf", "ADVERB_RCVBUF", "99999999999999999999"),
    ("--log", "ADVERB_LOG", "loud"),
];

#[test]
fn a_wrong_flag_value_is_named_with_what_is_allowed() {
    for (flag, _, value) in WRONG {
        let outcome = alone(&Tool::new("true").flag(flag, value), 20);
        refused(&outcome, 2, &[flag, "allowed: "]);
    }
}

#[test]
fn a_wrong_environment_value_is_named_with_what_is_allowed() {
    for (_, variable, value) in WRONG {
        let outcome = alone(&Tool::new("true").env(variable, value), 20);
        refused(&outcome, 2, &[variable, "allowed: "]);
    }
}

#[test]
fn an_unknown_flag_is_named_with_those_there_are() {
    let outcome = alone(&Tool::new("true").flag("--bogus", "1"), 20);
    refused(
        &outcome,
        2,
        &[
            "--bogus", "--netdev", "--addr", "--faults", "--pcap", "--rcvbuf", "--log",
        ],
    );
}

#[test]
fn a_missing_command_has_the_status_of_a_shell() {
    let addr = Place::new().addr;
    refused(
        &alone(&Tool::new("no-such-tool").addr(addr), 20),
        127,
        &["no-such-tool"],
    );
    refused(&alone(&Tool::new("/etc/passwd").addr(addr), 20), 126, &["/etc/passwd"]);
}

#[test]
fn the_command_keeps_its_status_and_its_signals() {
    for code in [0, 1, 77] {
        let tool = Tool::new("sh").arg("-c").arg(format!("exit {code}"));
        assert_eq!(alone(&tool, 20).status, Status::Code(code));
    }
    let killed = alone(&Tool::new("sh").arg("-c").arg("kill -SEGV $$"), 20);
    assert_eq!(killed.status, Status::Signal(11), "{killed}");
    let running = Tool::new("sleep 30").spawn(stage()).expect("start");
    std::thread::sleep(Duration::from_millis(300));
    let stopped = running.stop(Duration::from_secs(5));
    assert_eq!(stopped.status, Status::Signal(15), "{stopped}");
}

#[test]
fn the_command_sees_the_settings_and_nothing_is_printed() {
    let place = Place::new();
    let script = "echo $ADVERB_ADDR $ADVERB_RCVBUF $ADVERB_LOG";
    let tool = Tool::new("sh")
        .arg("-c")
        .arg(script)
        .addr(place.addr)
        .env("ADVERB_RCVBUF", "212992");
    let outcome = alone(&tool.flag("--log", "warn"), 20);
    assert!(outcome.succeeded() && outcome.stderr.is_empty(), "{outcome}");
    assert_eq!(
        outcome.stdout.trim(),
        format!("{} 212992 warn", place.addr),
        "{outcome}"
    );
}

#[test]
fn a_command_without_verbs_is_left_alone() {
    // The library is in the process, and has made no thread, no socket and no file.
    let outcome = alone(
        &Tool::new("sh")
            .arg("-c")
            .arg("ls -l /proc/self/fd /proc/self/task; exec true")
            .addr(Place::new().addr),
        20,
    );
    assert!(outcome.succeeded() && outcome.stderr.is_empty(), "{outcome}");
    assert!(!outcome.stdout.contains("socket:"), "{outcome}");
}

#[test]
fn an_address_of_another_user_is_said_to_be_in_use() {
    // Our own socket is another user's in the eyes of the unprivileged launcher, which needs us to be root.
    if !harness::root_or_skip("an_address_of_another_user_is_said_to_be_in_use") {
        return;
    }
    let place = Place::new();
    let _socket = UdpSocket::bind((place.addr, 4791)).expect("bind");
    let outcome = alone(&Tool::new("true").addr(place.addr), 20);
    refused(&outcome, 125, &["in use by user root", "--addr"]);
}

#[test]
fn the_devices_are_listed() {
    let adverb = stage().path("adverb").display().to_string();
    let outcome = alone(&Tool::new(&adverb).arg("devices").bare(), 20);
    assert!(outcome.succeeded(), "{outcome}");
    assert!(
        outcome.stdout.starts_with("DEVICE") && outcome.stdout.contains("adverb0"),
        "{outcome}"
    );
}
