//! The page is built into the program: when it changes, so does the program.

fn main() {
    println!("cargo:rerun-if-changed=page");
    println!("cargo:rerun-if-changed=build.rs");
}
