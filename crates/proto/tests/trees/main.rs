mod worlds;
use anabranch_control::rng::Rng;
use anabranch_proto::stream::tree::Moves;
use worlds::*;
#[test]
fn look() {
    for (n, server, client, k) in [
        (1000usize, 100usize, 25usize, 20usize),
        (12, 100, 50, 10),
        (50, 100, 50, 10),
        (12, 100, 50, 20),
        (50, 100, 50, 20),
    ] {
        for moves in [Moves::PRINTED, Moves::ALL] {
            for plane in [false, true] {
                let mut rng = Rng::stream(1, "l");
                let m = if plane {
                    Matrix::plane(n + 1, 100.0, 10.0, &mut rng)
                } else {
                    Matrix::uniform(n + 1, 10.0, 100.0, &mut rng)
                };
                let (mut book, nodes) = joined(settings(k, moves), server, &vec![client; n], &m);
                print!(
                    "{n} k={k} plane={plane} displace={} joins: depth {:.2} lat {:.1}",
                    moves.displace,
                    mean_depth(&book, k, &nodes),
                    mean_latency_ms(&book, k, &nodes)
                );
                for round in [1, 2, 4, 12, 20, 40] {
                    let t = std::time::Instant::now();
                    let r = settle(&mut book, k, &m, round);
                    print!(
                        " | +{r} sweeps: depth {:.2} lat {:.1} ({:.2} ms/sweep)",
                        mean_depth(&book, k, &nodes),
                        mean_latency_ms(&book, k, &nodes),
                        t.elapsed().as_secs_f64() * 1e3 / (r.max(1) * k) as f64
                    );
                }
                println!(" w={}", book.waiting().count());
                book.verify().unwrap();
            }
        }
    }
}
