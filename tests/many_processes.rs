//! Many processes on one address, and processes that die without a word.

mod harness;

use std::time::Duration;

use harness::{Pair, Place, Status, Tool, Turn, over_tcp, pass_together, rping, stage};

#[test]
fn sixteen_pairs_of_ib_write_bw_share_an_address() {
    let place = Place::new();
    let pairs = (0..16).map(|_| over_tcp(place.sibling(), "ib_write_bw -F").limit(180));
    pass_together(pairs.collect());
}

#[test]
fn the_death_of_one_client_leaves_seven_and_the_next() {
    let _turn = Turn::take_all().expect("turn");
    let place = Place::new();
    let mut pair = rping(place, "-V -C 3000 -S 4096").stopping_server();
    pair.server = pair.server.args("-P -d");
    let mut serving = pair.serve(stage()).expect("start");
    let mut clients: Vec<_> = (0..8).map(|_| serving.client(stage()).expect("start")).collect();

    // All eight are connected before one of them dies.
    let connected = |said: &str| said.matches("cma_event type RDMA_CM_EVENT_ESTABLISHED").count() >= 8;
    assert!(
        serving.server().wait_until(Duration::from_secs(30), connected),
        "{}",
        serving.server().stderr()
    );
    clients.remove(3).kill();

    // Clients close with a DISCONNECTED event at the server; the dead one has it done for it.
    for client in clients {
        let outcome = client.wait(Duration::from_secs(120));
        assert!(outcome.succeeded(), "{outcome}");
    }
    let disconnected = |said: &str| said.matches("DISCONNECT EVENT").count() >= 8;
    assert!(
        serving.server().wait_until(Duration::from_secs(30), disconnected),
        "{}",
        serving.server().stderr()
    );

    let next = rping(place, "-V -C 20 -S 4096")
        .client
        .spawn(stage())
        .expect("start")
        .wait(Duration::from_secs(60));
    assert!(next.succeeded(), "{next}");
    let report = serving.close(next);
    assert!(report.succeeded(), "\n{report}");
}

#[test]
fn a_server_hears_of_the_death_of_its_client() {
    let _turn = Turn::take().expect("turn");
    let pair = rping(Place::new(), "-V -C 10000000 -S 4096");
    let serving = pair.serve(stage()).expect("start");
    let mut client = serving.client(stage()).expect("start");
    std::thread::sleep(Duration::from_secs(1));
    assert!(!client.has_ended(), "{}", client.stderr());
    client.kill();
    let report = serving.close(client.wait(Duration::from_secs(1)));
    assert_ne!(report.server.status, Status::TimedOut, "the server hangs\n{report}");
    assert!(report.server.stderr.contains("DISCONNECT EVENT"), "\n{report}");
}

#[test]
fn a_client_hears_of_the_death_of_its_server() {
    let _turn = Turn::take().expect("turn");
    let pair = rping(Place::new(), "-V -C 10000000 -S 4096");
    let mut serving = pair.serve(stage()).expect("start");
    let mut client = serving.client(stage()).expect("start");
    std::thread::sleep(Duration::from_secs(1));
    assert!(!client.has_ended(), "{}", client.stderr());
    serving.server().kill();
    let outcome = client.wait(Duration::from_secs(60));
    // The tool may end with 0 on a disconnect; what counts is that it ends, and why.
    assert!(matches!(outcome.status, Status::Code(_)), "{outcome}");
    assert!(
        outcome.stderr.contains("DISCONNECT EVENT") || outcome.stderr.contains("cq completion"),
        "{outcome}"
    );
}

#[test]
fn a_port_of_the_dead_is_free_again() {
    let _turn = Turn::take().expect("turn");
    let place = Place::new();
    let mut serving = rping(place, "-V -C 10").serve(stage()).expect("start");
    serving.server().kill();
    std::thread::sleep(Duration::from_secs(2));
    let report = rping(place, "-V -C 10").run(stage()).expect("start");
    assert!(report.succeeded(), "\n{report}");
}

#[test]
fn nothing_keeps_the_pipe_of_a_finished_command_open() {
    // What a CI step waits for: the end of the command's output, not only of the command.
    let _turn = Turn::take().expect("turn");
    let place = Place::new();
    let pair = over_tcp(place, "ibv_rc_pingpong -g 0 -c");
    // `cat` ends only when every holder of the pipe has closed it.
    let piped = Tool::new("sh")
        .bare()
        .arg("-c")
        .arg("\"$@\" | cat")
        .arg("sh")
        .arg(stage().path("adverb"));
    let piped = piped.args(&format!("run --addr {} --", place.addr));
    let client = piped.args(&format!("ibv_rc_pingpong -g 0 -c -p {} {}", place.port, place.addr));
    let report = Pair { client, ..pair }.limit(20).run(stage()).expect("start");
    assert!(report.succeeded(), "\n{report}");
    assert!(report.client.elapsed < Duration::from_secs(10), "\n{report}");
}
