mod worlds;
use anabranch_control::rng::Rng;
use anabranch_proto::stream::tree::Moves;
use worlds::*;
#[test]
fn look() {
    for moves in [Moves::PRINTED, Moves::ALL] {
        for plane in [false, true] {
            let (n, k) = (1000, 20);
            let mut rng = Rng::stream(1, "l");
            let m = if plane {
                Matrix::plane(n + 1, 100.0, 10.0, &mut rng)
            } else {
                Matrix::uniform(n + 1, 10.0, 100.0, &mut rng)
            };
            let (mut book, nodes) = joined(settings(k, Moves { displace: false, ..moves }), 100, &vec![25; n], &m);
            book.set_moves(moves);
            for _ in 0..5 {
                let t0 = cpu_ms();
                settle(&mut book, k, &m, 8);
                print!(
                    "8 sweeps {:.2} ms each;  depth {:.2} lat {:.1} ",
                    (cpu_ms() - t0) / (8 * k) as f64,
                    mean_depth(&book, k, &nodes),
                    mean_latency_ms(&book, k, &nodes)
                );
                let roomy = nodes
                    .iter()
                    .filter(|&&x| {
                        let (p, h) = book.places(x);
                        h < p
                    })
                    .count();
                let interior: usize =
                    (0..k).map(|s| nodes.iter().filter(|&&x| !book.children(s, x).is_empty()).count()).sum::<usize>()
                        / k;
                book.set_moves(moves);
                let t = cpu_ms();
                let mut w = 0;
                let mut ch = vec![];
                for _ in 0..k {
                    w += book.step(&m, usize::MAX, &mut ch).work;
                }
                println!(
                    "{moves:?} plane={plane}: roomy {roomy} interior {interior} work {} {:.2} ms a sweep; changes {}",
                    w / k,
                    (cpu_ms() - t) / k as f64,
                    ch.len()
                );
            }
        }
    }
}

fn cpu_ms() -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat").unwrap().split(' ').next().unwrap().parse::<f64>().unwrap()
        / 1e6
}
