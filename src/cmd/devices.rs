//! `adverb devices`: the devices a program under `adverb run` sees, one for each interface that is up.

use crate::errors::Result;
use crate::netdev::{self, NetDev};

/// Prints the table.
pub fn main() -> Result<()> {
    print!("{}", table(&netdev::list()?));
    Ok(())
}

fn table(devices: &[NetDev]) -> String {
    let mut rows = vec![["DEVICE", "NETDEV", "STATE", "MTU", "PMTU", "GIDS"].map(str::to_owned)];
    let (up, down): (Vec<_>, Vec<_>) = devices.iter().partition(|device| device.up);
    for (index, device) in up.iter().enumerate() {
        let state = if device.addresses.is_empty() {
            "no address"
        } else {
            "active"
        };
        rows.push(row(format!("adverb{index}"), state, device));
    }
    rows.extend(down.iter().map(|device| row("-".to_owned(), "down", device)));

    let widths: Vec<usize> = (0..5)
        .map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0))
        .collect();
    let line = |row: &[String; 6]| {
        let cells: String = (0..5)
            .map(|column| format!("{:<width$}  ", row[column], width = widths[column]))
            .collect();
        format!("{cells}{}", row[5]).trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn row(device: String, state: &str, netdev: &NetDev) -> [String; 6] {
    let gids: Vec<String> = netdev
        .gids()
        .enumerate()
        .map(|(index, gid)| format!("{index}={gid}"))
        .collect();
    let of_link = |value: u32| if netdev.up { value.to_string() } else { "-".to_owned() };
    let (mtu, pmtu) = (of_link(netdev.mtu), of_link(netdev.pmtu()));
    [device, netdev.name.clone(), state.to_owned(), mtu, pmtu, gids.join(" ")]
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn up_interfaces_are_numbered_and_down_ones_are_not() {
        let device = |name: &str, up, mtu, addresses| NetDev {
            name: name.to_owned(),
            up,
            loopback: name == "lo",
            mtu,
            addresses,
        };
        let devices = [
            device("lo", true, 65536, vec![Ipv4Addr::LOCALHOST.into()]),
            device("eth0", false, 1500, Vec::new()),
            device("eth1", true, 1500, vec![Ipv4Addr::new(10, 0, 0, 5).into()]),
        ];
        let expected = "\
DEVICE   NETDEV  STATE   MTU    PMTU  GIDS
adverb0  lo      active  65536  4096  0=::ffff:127.0.0.1
adverb1  eth1    active  1500   1024  0=::ffff:10.0.0.5
-        eth0    down    -      -
";
        assert_eq!(table(&devices), expected);
    }
}
