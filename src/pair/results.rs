//! The numbers in what the tools print.

/// A bandwidth row of perftest run with `--report_gbits`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// Message size.
    pub bytes: u64,
    /// Average bandwidth in Gbit/s.
    pub gbits: f64,
    /// Million messages a second.
    pub mpps: f64,
}

/// A latency row of perftest; times of one way (half a round trip), in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    /// Message size.
    pub bytes: u64,
    /// Median.
    pub typical: f64,
    /// 99th percentile.
    pub percentile_99: f64,
}

/// The bandwidth rows of perftest's output.
pub fn perftest_bandwidth(text: &str) -> Vec<Bandwidth> {
    rows(text, "#bytes")
        .filter_map(|row| match row.as_slice() {
            [bytes, _iterations, _peak, average, rate] => Some(Bandwidth {
                bytes: bytes.parse().ok()?,
                gbits: average.parse().ok()?,
                mpps: rate.parse().ok()?,
            }),
            _ => None,
        })
        .collect()
}

/// The latency rows of perftest's output.
pub fn perftest_latency(text: &str) -> Vec<Latency> {
    rows(text, "#bytes")
        .filter_map(|row| match row.as_slice() {
            [
                bytes,
                _iterations,
                _min,
                _max,
                typical,
                _average,
                _stdev,
                percentile_99,
                _percentile_999,
            ] => Some(Latency {
                bytes: bytes.parse().ok()?,
                typical: typical.parse().ok()?,
                percentile_99: percentile_99.parse().ok()?,
            }),
            _ => None,
        })
        .collect()
}

/// The words of the lines after the heading.
fn rows<'a>(text: &'a str, heading: &str) -> impl Iterator<Item = Vec<&'a str>> {
    let heading = heading.to_owned();
    let lines = text
        .lines()
        .skip_while(move |line| !line.trim_start().starts_with(&heading))
        .skip(1);
    lines.map(|line| line.split_whitespace().collect())
}

/// (Mbit/s, µs per iteration) of an `ibv_*_pingpong`.
pub fn pingpong(text: &str) -> Option<(f64, f64)> {
    let number_before = |unit: &str| {
        let line = text.lines().find(|line| line.trim_end().ends_with(unit))?;
        line.trim_end()
            .strip_suffix(unit)?
            .split_whitespace()
            .last()?
            .parse::<f64>()
            .ok()
    };
    Some((number_before("Mbit/sec")?, number_before("usec/iter")?))
}

/// (test, Gbit/s, µs per transfer) of every row of `rstream`.
pub fn rstream(text: &str) -> Vec<(String, f64, f64)> {
    rows(text, "name")
        .filter_map(|row| match row.as_slice() {
            [name, _bytes, _transfers, _iterations, _total, _time, gbits, usec] => {
                Some(((*name).to_owned(), gbits.parse().ok()?, usec.parse().ok()?))
            }
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_perftest() {
        let bandwidth = "\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 65536      5000             18.01              17.62  \t\t   0.033610
---------------------------------------------------------------------------------------
";
        assert_eq!(
            perftest_bandwidth(bandwidth),
            [Bandwidth {
                bytes: 65536,
                gbits: 17.62,
                mpps: 0.033610
            }]
        );
        let latency = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 8       1000          7.01           60.02        7.55               7.90           1.02            9.10                    60.02
";
        assert_eq!(
            perftest_latency(latency),
            [Latency {
                bytes: 8,
                typical: 7.55,
                percentile_99: 9.10
            }]
        );
    }

    #[test]
    fn reads_pingpong_and_rstream() {
        let text = "8192000 bytes in 0.01 seconds = 7001.50 Mbit/sec\n1000 iters in 0.01 seconds = 9.36 usec/iter\n";
        assert_eq!(pingpong(text), Some((7001.50, 9.36)));
        let text = "\
name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer
custom    64k     100     100     1.2g        0.35s     29.86      17.56
";
        assert_eq!(rstream(text), [("custom".to_owned(), 29.86, 17.56)]);
    }
}
