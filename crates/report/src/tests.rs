//! Reports and charts as a whole: well-formed, escaped, small, the same every time.

use quick_xml::Reader;
use quick_xml::events::Event;

use super::*;
use anabranch_stats::{autocorrelation, estimate_mean, normality};

const HOSTILE: &str = "</style><script>alert('x')</script> & \"quoted\" <b>";

/// Every kind of block, cell and chart. Numbers come from a counter, not a clock.
fn sample_report() -> Report {
    let mut state = 11u64;
    let mut noise = move || {
        // SplitMix64; the sum of four is near enough to normal for a picture.
        let mut sum = 0.0;
        for _ in 0..4 {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            sum += ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        }
        sum
    };
    let mut course = |mean: f64, time_constant: f64, swing: f64| -> Vec<(f64, f64)> {
        let at = |t: f64| mean * (1.0 - libm::exp(-t / time_constant));
        (0..300_000).map(|t| (f64::from(t), at(f64::from(t)) + swing * noise())).collect()
    };
    let q = course(90_416.0, 6_000.0, 2_500.0);
    let aimd = course(46_642.0, 30_000.0, 4_000.0);
    let means: Vec<f64> =
        q[100_000..].chunks_exact(5_700).map(|batch| batch.iter().map(|p| p.1).sum::<f64>() / 5_700.0).collect();
    let check = normality(&means).expect("35 different means");
    let acf = autocorrelation(&means, 15).expect("35 different means");
    let time = || Axis::new("time", "s");
    let throughput = || Axis::new("received", "bytes/s").from_zero();
    let over_peers = |factor: f64| {
        XyChart::new(Axis::new("peers", "").whole_numbers(), throughput())
            .series(Series::intervals(
                "Q-Learning",
                [10.0, 20.0, 30.0, 50.0, 80.0].map(|n| (n, factor * 92_000.0 - 90.0 * n, 1_800.0 + 20.0 * n)).to_vec(),
            ))
            .series(Series::intervals(
                "AIMD",
                [10.0, 20.0, 30.0, 50.0, 80.0].map(|n| (n, factor * 40_000.0 + 300.0 * n, 2_500.0)).to_vec(),
            ))
            .series(
                Series::line("Perfect", [10.0, 20.0, 30.0, 50.0, 80.0].map(|n| (n, 89_271.0 + 2.0 * n)).to_vec())
                    .markers(),
            )
            .reference(Reference::horizontal("thesis, 20 peers", 90_416.43))
    };
    let parameters: Vec<f64> = (1..=8).map(|i| f64::from(i) * 0.05).collect();
    let cells = (0..6)
        .map(|row| {
            (0..8)
                .map(|column| {
                    let value = 60_000.0 + 4_000.0 * f64::from(row * column);
                    (row != 5 || column != 7).then_some(value)
                })
                .collect()
        })
        .collect();
    Report::new("Saturated connections, table 7.4")
        .meta("seed", "1")
        .meta("controller", "q_learning, aimd, perfect, random")
        .meta("scenario", "experiments/thesis-table-7-4/scenario.toml")
        .meta("simulated", "300 000 s")
        .meta("wall-clock", "12.4 s")
        .meta("version", "0.1.0")
        .paragraph("Twenty peers send as much as they can, every packet over three hops. A peer forwards up to 400 000 bytes per second. Intervals are 95 % by batch means.")
        .table(
            Table::new(
                "Results for 20 peers and three hops for each packet",
                ["controller", "thesis (bytes/s)", "ours (bytes/s)", "converged (s)", "verdict"],
            )
            .row([
                Cell::text("Q-Learning"),
                Cell::interval(90_416.43, 24.465_69),
                Cell::Estimate(estimate_mean(&means, 0.95)),
                Cell::number(293.5, 1),
                Cell::Verdict(Verdict::Agrees),
            ])
            .row([
                Cell::text("AIMD"),
                Cell::interval(46_642.57, 14.191_11),
                Cell::Estimate(estimate_mean(&(0..35).map(f64::from).collect::<Vec<_>>(), 0.95)),
                Cell::number(1368.5, 1),
                Cell::Verdict(Verdict::Disagrees),
            ])
            .row([
                Cell::text("Random"),
                Cell::interval(4_099.495, 4.823_612),
                Cell::Estimate(estimate_mean(&[4_100.0; 7], 0.95)),
                Cell::number(f64::NAN, 1),
                Cell::Verdict(Verdict::NotJudged),
            ]),
        )
        .section("Course of a run")
        .figure(Figure::chart(
            "Received data of 300 000 seconds, one value per second",
            XyChart::new(time(), throughput())
                .series(Series::line("Q-Learning", q))
                .series(Series::line("AIMD", aimd))
                .reference(Reference::horizontal("thesis, Q-Learning", 90_416.43))
                .reference(Reference::vertical("converged", 14_000.0)),
        ))
        .section("Over the number of peers")
        .figures_side_by_side(vec![
            Figure::chart("The thesis's figure 7.4", over_peers(1.0)),
            Figure::chart("Ours", over_peers(0.97)),
        ])
        .figures_side_by_side(vec![
            Figure::quote(
                "The thesis on figure 7.6",
                "After increasing the latency between nodes to 200ms it is barely better than the 'random' congestion controller.",
                "Section 7.3.1, on AIMD",
            ),
            Figure::chart(
                "Ours, logarithmic",
                XyChart::new(Axis::new("delay", "ms").log(), Axis::new("received", "bytes/s").log())
                    .series(Series::intervals(
                        "AIMD",
                        [5.0, 10.0, 50.0, 100.0, 200.0]
                            .map(|d| (d, 400_000.0 / d, 40_000.0 / d))
                            .to_vec(),
                    ))
                    .series(Series::intervals(
                        "Q-Learning",
                        [5.0, 10.0, 50.0, 100.0, 200.0].map(|d| (d, 90_000.0 - d, 900.0)).to_vec(),
                    )),
            ),
        ])
        .figures_side_by_side(vec![
            Figure::chart(
                "Throughput by controller",
                BarChart::new(
                    "",
                    Axis::new("received", "bytes/s"),
                    ["AIMD", "Q-Learning", "Perfect", "Random"].map(String::from).to_vec(),
                )
                .series(
                    BarSeries::new(
                        "thesis",
                        [46_642.57, 90_416.43, 89_271.82, 4_099.495].map(Some).to_vec(),
                    )
                    .hollow()
                    .slot(6),
                )
                .series(
                    BarSeries::new("ours", vec![Some(44_100.0), Some(90_020.0), Some(91_300.0), None])
                        .intervals(vec![1_900.0, 2_300.0, 900.0, f64::NAN])
                        .slot(0),
                ),
            ),
            Figure::chart(
                "Drops by situation, with long names",
                BarChart::new(
                    "situation",
                    Axis::new("drops", "1/s").log(),
                    ["before the exchange", "immediately afterwards", "equilibrium", "slow start", "constrained", "unconstrained"]
                        .map(String::from)
                        .to_vec(),
                )
                .series(BarSeries::new("Q-Learning", [3.0, 240.0, 5.0, 31.0, 0.4, 0.2].map(Some).to_vec()))
                .series(BarSeries::new("AIMD", [0.02, 9.0, 0.05, 80.0, 0.1, 0.02].map(Some).to_vec()))
                .reference("tolerated", 10.0),
            ),
        ])
        .section("Are the batch means independent and normal?")
        .figures_side_by_side(vec![
            Figure::chart("Quantiles", Chart::quantile_quantile(&check, "batch mean", "bytes/s")),
            Figure::chart("Autocorrelation", Chart::autocorrelation(&acf, "batches")),
        ])
        .section("Two parameters")
        .figure(Figure::chart(
            "Mean received data over both learning parameters",
            HeatMap::new(
                (Axis::new("α", ""), parameters.clone()),
                (Axis::new("γ", ""), parameters[..6].to_vec()),
                Axis::new("received", "bytes/s"),
                cells,
            ),
        ))
        .figure(Figure::chart(
            "All that a chart can tell apart",
            (0..9).fold(
                XyChart::new(time(), Axis::new("window", "packets")),
                |chart, i| {
                    let points =
                        (0..9).map(|t| (f64::from(t), f64::from(i * 3) + 2.0 * libm::sin(f64::from(t + i))));
                    chart.series(Series::line(format!("flow {i}"), points.collect()).markers())
                },
            ),
        ))
        .folded_table("All other figures", Table::new("Told", ["what"]).row([Cell::text("folded away")]))
        .listing("Scenario", "[network]\npeers = 20\nhops = 3\nrate = \"400000 B/s\"\n")
}

/// Walks through `text` as XML: every element is closed, every reference known.
/// Returns the names of the elements in order, and all text.
fn parse(text: &str) -> (Vec<String>, String) {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let (mut names, mut words, mut depth) = (Vec::new(), String::new(), 0i32);
    loop {
        match reader.read_event().expect("well-formed") {
            Event::Eof => break,
            Event::Start(element) => {
                depth += 1;
                for attribute in element.attributes() {
                    attribute.expect("a quoted attribute").unescape_value().expect("escaped");
                }
                names.push(String::from_utf8(element.name().as_ref().to_vec()).unwrap());
            }
            Event::Empty(element) => {
                for attribute in element.attributes() {
                    attribute.expect("a quoted attribute").unescape_value().expect("escaped");
                }
                names.push(String::from_utf8(element.name().as_ref().to_vec()).unwrap());
            }
            Event::End(_) => depth -= 1,
            Event::Text(part) => words.push_str(&part.decode().unwrap()),
            Event::GeneralRef(reference) => {
                let name = reference.decode().unwrap();
                words.push(match name.as_ref() {
                    "amp" => '&',
                    "lt" => '<',
                    "gt" => '>',
                    "quot" => '"',
                    "#39" => '\'',
                    other => panic!("unknown reference &{other};"),
                });
            }
            _ => {}
        }
    }
    assert_eq!(depth, 0, "every element is closed");
    (names, words)
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|n| *n == name).count()
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_else() {
    let html = sample_report().to_html();
    let (names, words) = parse(&html);
    assert_eq!(count(&names, "figure"), 12);
    assert_eq!(count(&names, "tr"), 6);
    assert_eq!((count(&names, "details"), count(&names, "summary")), (1, 1));
    for loader in ["script", "img", "link", "iframe", "image", "use"] {
        assert_eq!(count(&names, loader), 0, "{loader}");
    }
    // The name of the SVG language is the only address, and is never opened.
    let addresses = html.replace("http://www.w3.org/2000/svg", "");
    assert!(!addresses.contains("http:") && !addresses.contains("https:"));
    assert!(!html.contains("NaN") && !html.contains("inf\""));
    assert!(words.contains("too short for an interval: 7 of 10 batches"));
    assert!(words.contains("90\u{202f}416 ± 24"));
    assert!(words.contains("✗ disagrees"));
}

#[test]
fn a_picture_is_in_the_page_itself_and_only_such_a_page_may_show_one() {
    let picture = Figure::picture("What was seen.", "a \"page\"", "iVBORw0K\"/><script>+/==");
    let page = Report::new("with").figure(picture).to_html();
    parse(&page);
    assert!(
        page.contains("<img alt=\"a &quot;page&quot;\" src=\"data:image/png;base64,iVBORw0K/script+/==\"/>"),
        "{page}"
    );
    assert!(page.contains("img-src data:\""));
    assert!(!sample_report().to_html().contains("img-src"));
}

#[test]
fn three_hundred_thousand_points_stay_small() {
    let length = sample_report().to_html().len();
    assert!(length < 250_000, "{length} bytes");
}

#[test]
fn equal_reports_are_equal_bytes() {
    assert_eq!(sample_report().to_html(), sample_report().to_html());
}

#[test]
fn text_stays_text_wherever_it_stands() {
    let axis = || Axis::new(HOSTILE, HOSTILE);
    let xy = XyChart::new(axis(), axis())
        .series(Series::line(HOSTILE, vec![(0.0, 0.0), (1.0, 1.0)]))
        .reference(Reference::vertical(HOSTILE, 0.5));
    let bars =
        BarChart::new(HOSTILE, axis(), vec![HOSTILE.to_owned()]).series(BarSeries::new(HOSTILE, vec![Some(1.0)]));
    let heat = HeatMap::new((axis(), vec![1.0]), (axis(), vec![1.0]), axis(), vec![vec![Some(1.0)]]);
    let stem = StemChart::new(axis(), axis(), vec![(0.0, 1.0)]);
    let charts: [Chart; 4] = [xy.into(), bars.into(), heat.into(), stem.into()];
    let mut report = Report::new(HOSTILE)
        .meta(HOSTILE, HOSTILE)
        .section(HOSTILE)
        .paragraph(HOSTILE)
        .listing(HOSTILE, HOSTILE)
        .table(Table::new(HOSTILE, [HOSTILE]).row([Cell::text(HOSTILE)]))
        .figure(Figure::quote(HOSTILE, HOSTILE, HOSTILE));
    for chart in charts {
        let (names, _) = parse(&chart.to_svg(HOSTILE));
        assert_eq!(count(&names, "script") + count(&names, "b"), 0);
        report = report.figure(Figure::chart(HOSTILE, chart));
    }
    let (names, words) = parse(&report.to_html());
    assert_eq!(count(&names, "script"), 0);
    assert_eq!(count(&names, "style"), 1);
    // Title, heading, meta, section, paragraph, listing, table and quotation.
    assert!(words.matches(HOSTILE).count() >= 13);
}

#[test]
fn a_spike_and_a_gap_reach_the_drawing() {
    let mut points: Vec<(f64, f64)> = (0..100_000).map(|t| (f64::from(t), 0.0)).collect();
    points[70_000].1 = 50.0;
    points[30_000].1 = f64::NAN;
    let chart: Chart = XyChart::new(Axis::new("t", "s").range(0.0, 100_000.0), Axis::new("y", "").range(0.0, 50.0))
        .series(Series::line("spike", points))
        .into();
    let svg = chart.to_svg("spike");
    let path = svg.split("<path class=\"line").nth(1).unwrap();
    let data = path.split('"').nth(2).unwrap();
    assert_eq!(data.matches('M').count(), 2, "one move before and one after the gap");
    let heights: Vec<f64> = data
        .split(['M', 'L'])
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split(' ').nth(1).unwrap().parse().unwrap())
        .collect();
    // The top of the plot is 0, and its foot is its height.
    assert_eq!(heights.iter().filter(|y| **y == 0.0).count(), 1);
    assert!(heights.len() < 1700);
}

#[test]
fn charts_without_data_say_so() {
    let axis = || Axis::new("x", "");
    let empty: [Chart; 4] = [
        XyChart::new(axis(), axis()).series(Series::line("none", vec![(f64::NAN, 1.0)])).into(),
        XyChart::new(axis().log(), axis().log()).series(Series::points("none", vec![(-1.0, 0.0)])).into(),
        BarChart::new("", axis(), vec![]).into(),
        StemChart::new(axis(), axis(), vec![]).into(),
    ];
    for chart in empty {
        let svg = chart.to_svg("empty");
        let (_, words) = parse(&svg);
        assert!(words.contains("no data"));
        assert!(!svg.contains("NaN"));
    }
    let heat = HeatMap::new((axis(), vec![]), (axis(), vec![]), axis(), vec![]);
    parse(&Chart::from(heat).to_svg("empty"));
}

#[test]
fn a_series_keeps_its_looks_by_its_slot() {
    let chart = |slot: usize| -> Chart {
        XyChart::new(Axis::new("x", ""), Axis::new("y", ""))
            .series(Series::line("a", vec![(0.0, 0.0), (1.0, 1.0)]).slot(slot))
            .into()
    };
    assert!(chart(3).to_svg("a").contains("class=\"line s3 d3\""));
    assert!(!chart(0).to_svg("a").contains("class=\"line s3 d3\""));
}

#[test]
#[should_panic(expected = "has not one cell for every header")]
fn a_row_has_a_cell_for_every_header() {
    let _ = Table::new("t", ["a", "b"]).row([Cell::text("alone")]);
}

#[test]
fn a_report_and_a_chart_are_written_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("report.html");
    sample_report().write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), sample_report().to_html());
    let chart: Chart = StemChart::new(Axis::new("x", ""), Axis::new("y", ""), vec![(0.0, 1.0)]).into();
    let path = directory.path().join("chart.svg");
    chart.write_svg("stem", &path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), chart.to_svg("stem"));
}

#[test]
fn more_series_than_can_be_distinguished_become_charts_with_the_same_axes() {
    let chart = |count: usize| {
        let axis = |label: &str| Axis::new(label, "");
        (0..count).fold(XyChart::new(axis("x"), axis("y").from_zero()), |chart, i| {
            let x = i as f64;
            chart.series(Series::line(format!("series {i}!"), vec![(x, 0.0), (x + 1.0, 3.0 * x)]))
        })
    };
    assert_eq!(chart(XyChart::MOST_SERIES).small_multiples(), [chart(XyChart::MOST_SERIES)]);
    let charts = chart(22).small_multiples();
    assert_eq!(charts.len(), 3);
    let pages: Vec<String> =
        charts.into_iter().map(|chart| Report::new("").figure(Figure::chart("", chart)).to_html()).collect();
    let with = |page: &String| (0..22).filter(|i| page.contains(&format!("series {i}!"))).count();
    assert_eq!(pages.iter().map(with).collect::<Vec<usize>>(), [8, 8, 6]);
    let scale = |page: &String| -> Vec<String> {
        page.split("class=\"tick").skip(1).map(|text| text.split(['>', '<']).nth(1).unwrap().to_owned()).collect()
    };
    assert!(scale(&pages[0]).len() > 6, "{:?}", scale(&pages[0]));
    assert!(pages.iter().all(|page| scale(page) == scale(&pages[0])));
    let page = Report::new("").small_multiples("Caption", chart(22)).to_html();
    assert!(page.contains("Caption (3 of 3)"));
}

#[test]
fn as_many_bars_as_may_have_a_colour_each_and_one_more_has_the_firsts() {
    let colours = |count: usize| {
        let chart = BarChart::new("", Axis::new("y", ""), vec!["group".to_owned()]);
        let bar = |i: usize| BarSeries::new(format!("bar {i}"), vec![Some(1.0)]);
        let svg = Chart::from((0..count).fold(chart, |chart, i| chart.series(bar(i)))).to_svg("bars");
        // What fills a bar; dashes are those of lines.
        let classes = svg.split("class=\"bar s").skip(1).map(|rest| rest[..1].to_owned());
        classes.collect::<std::collections::BTreeSet<String>>().len()
    };
    assert_eq!(colours(BarChart::MOST_SERIES), BarChart::MOST_SERIES);
    assert_eq!(colours(BarChart::MOST_SERIES + 1), BarChart::MOST_SERIES);
}
