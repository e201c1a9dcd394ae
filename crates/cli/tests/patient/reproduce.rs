//! `anabranch reproduce` on real sockets.

use crate::common::Place;

/// The one figure of `metric`.
fn figure(json: &serde_json::Value, metric: &str) -> f64 {
    let rows = json["rows"].as_array().unwrap();
    let [row] = &rows.iter().filter(|row| row["metric"] == metric).collect::<Vec<_>>()[..] else { panic!("{json}") };
    row["ours"].as_f64().unwrap_or_else(|| panic!("{row}"))
}

#[test]
fn files_go_over_sockets_of_which_some_die_and_figures_say_how() {
    let place = Place::new("");
    let setting = "20 MB over eight relays, two killed";
    let arguments = ["reproduce", "anabranch-learners", "--quick", "--json", "--sockets", "--setting", setting];
    let said = place.say(&arguments);
    assert_eq!(said.code, Some(0), "{said:?}");
    let json = said.json();
    // Eight relays of 4 MB/s bring no more than 9.5 MB/s over three of them, headers aside.
    assert!(figure(&json, &format!("seconds[{setting}]")) > 20.0 / 9.5);
    assert!(figure(&json, &format!("lost_percent[{setting}]")) > 0.0, "what was on the way to them is lost");
    assert_eq!(json["rows"].as_array().unwrap().len(), 2, "nothing else ran: {json}");
    place
        .say(&["reproduce", "raiber-table-7.4", "--quick", "--sockets"])
        .refuses("those that have: anabranch-learners");
}
