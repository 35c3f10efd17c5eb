//! Whether a process listens, read from the kernel's tables: nothing connects to it, because a tool that accepts one
//! peer would take the probe for it.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::Listening;

/// Prefix of the abstract Unix socket names by which processes claim ports of the connection manager.
const CM_CLAIM: &str = "@adverb/cm/";

/// Whether process `pid` listens as described.
pub(super) fn listens(pid: u32, listening: Listening) -> bool {
    match listening {
        Listening::Tcp(port) => ["tcp", "tcp6"]
            .into_iter()
            .any(|table| has_tcp_listener(&read(&format!("/proc/{pid}/net/{table}")), port)),
        Listening::ConnectionManager => {
            let inodes = cm_claims(&read(&format!("/proc/{pid}/net/unix")));
            !inodes.is_empty() && owns_any(pid, &inodes)
        }
    }
}

fn read(path: &str) -> String {
    // The table of the process's own network namespace. A name in it need not be UTF-8.
    fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}

fn has_tcp_listener(table: &str, port: u16) -> bool {
    table.lines().any(|line| {
        let mut fields = line.split_whitespace();
        let bound = fields
            .nth(1)
            .and_then(|local| local.rsplit_once(':'))
            .map(|(_, port)| port.to_owned());
        let listening = fields.nth(1) == Some("0A");
        listening && bound.is_some_and(|bound| u16::from_str_radix(&bound, 16) == Ok(port))
    })
}

/// Inodes of the sockets whose names claim a port of the connection manager.
fn cm_claims(table: &str) -> Vec<String> {
    let claims = table.lines().filter(|line| line.contains(CM_CLAIM));
    claims
        .filter_map(|line| line.split_whitespace().nth(6).map(str::to_owned))
        .collect()
}

fn owns_any(pid: u32, inodes: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd")) else {
        return false;
    };
    descriptors.flatten().any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = String::from_utf8_lossy(target.as_os_str().as_bytes()).into_owned();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inode.is_some_and(|inode| inodes.iter().any(|claimed| claimed == inode))
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[test]
    fn sees_its_own_tcp_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(listens(std::process::id(), Listening::Tcp(port)));
        drop(listener);
        assert!(!listens(std::process::id(), Listening::Tcp(port)));
    }

    #[test]
    fn sees_a_claim_only_of_the_process_asked_about() {
        let name = format!("adverb/cm/selftest/{}", std::process::id());
        assert!(!listens(std::process::id(), Listening::ConnectionManager));
        let claim = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
        assert!(listens(std::process::id(), Listening::ConnectionManager));
        let other = std::process::Command::new("sleep").arg("5").spawn().unwrap();
        assert!(!listens(other.id(), Listening::ConnectionManager));
        let mut other = other;
        other.kill().unwrap();
        other.wait().unwrap();
        drop(claim);
    }
}
