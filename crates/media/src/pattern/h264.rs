//! Pictures of macroblocks of one colour each as H.264 (ITU-T H.264, numbers below are its clauses), constrained
//! baseline, without loss.
//!
//! A macroblock is predicted from its left neighbour, or from the one above at the left edge, and the difference
//! is one coefficient for luma and one for each chroma (Intra_16x16, DC alone). At the quantizers that are chosen
//! here the inverse transform gives back just what went in. A picture that needs no other is all such macroblocks;
//! any other picture skips those that are as they were (P_Skip).

use super::bits::Bits;
use super::picture::{Colour, MACROBLOCK, Picture};

/// QPY = 28. Of a DC coefficient c, the inverse transform (8.5.10, LevelScale = 16 · 16 for 28 % 6 = 4) makes
/// (256 · c + 2) >> 2 = 64 · c in each block of luma, and (8.5.12) a difference of (64 · c + 32) >> 6 = c.
const LUMA_QUANTIZER: i32 = 28;

/// QPC = 22, where (8.5.11.2) makes ((256 · c) << 3) >> 5 = 64 · c of a chroma coefficient: c again.
const CHROMA_QUANTIZER: i32 = 22;

/// Frame numbers are modulo 16 (7.4.2.1.1, log2_max_frame_num_minus4 = 0).
const FRAME_NUMBER_BITS: u32 = 4;

/// What a picture is, in the header of its unit: kind (table 7-1), and whether others need it.
mod unit {
    pub const OTHER_SLICE: u8 = 0x41;
    pub const KEY_SLICE: u8 = 0x65;
    pub const SEQUENCE: u8 = 0x67;
    pub const PICTURES: u8 = 0x68;
    pub const DELIMITER: u8 = 0x09;
    pub const FILLER: u8 = 0x0c;
}

/// Table A-1: the number, macroblocks a second, macroblocks a picture, and bits a second in units of 1200.
const LEVELS: [(u8, u64, u64, u64); 10] = [
    (13, 11_880, 396, 768),
    (20, 11_880, 396, 2_000),
    (21, 19_800, 792, 4_000),
    (22, 20_250, 1_620, 4_000),
    (30, 40_500, 1_620, 10_000),
    (31, 108_000, 3_600, 14_000),
    (32, 216_000, 5_120, 20_000),
    (40, 245_760, 8_192, 20_000),
    (41, 245_760, 8_192, 50_000),
    (42, 522_240, 8_704, 50_000),
];

/// What a decoder must bear: the least level that allows it; none if none of those here does.
pub fn level(width: usize, height: usize, frames_per_s: u32, bits_per_s: u64) -> Option<u8> {
    let (columns, rows) = (width.div_ceil(MACROBLOCK) as u64, height.div_ceil(MACROBLOCK) as u64);
    let allows = |&&(_, per_s, per_picture, rate): &&(u8, u64, u64, u64)| {
        columns * rows * u64::from(frames_per_s) <= per_s
            && columns * rows <= per_picture
            // A.3.1: nor may a picture be all too long.
            && columns.max(rows).pow(2) <= 8 * per_picture
            && bits_per_s <= rate * 1200
    };
    LEVELS.iter().find(allows).map(|&(level, ..)| level)
}

/// Codes pictures, one after another.
#[derive(Clone, Debug)]
pub struct Encoder {
    sequence: Vec<u8>,
    /// The picture that was coded last.
    last: Option<Picture>,
    frame_number: u32,
    /// Pictures that need no other, so far.
    keyframes: u32,
}

impl Encoder {
    /// For pictures of that size, this many a second.
    pub fn new(width: usize, height: usize, frames_per_s: u32, level: u8) -> Encoder {
        let sequence = sequence_parameters(width, height, frames_per_s, level);
        Encoder { sequence, last: None, frame_number: 0, keyframes: 0 }
    }

    /// The next picture: an access unit as a byte stream (annex B).
    pub fn encode(&mut self, picture: &Picture, is_keyframe: bool) -> Vec<u8> {
        let before = self.last.take().filter(|_| !is_keyframe);
        let mut bytes = Vec::new();
        // 7.3.2.4: pictures of I, or of I and P slices.
        let kinds = if before.is_some() { 0b001_10000 } else { 0b000_10000 };
        put_unit(&mut bytes, unit::DELIMITER, &[kinds]);
        match &before {
            None => {
                put_unit(&mut bytes, unit::SEQUENCE, &self.sequence);
                put_unit(&mut bytes, unit::PICTURES, &picture_parameters());
                put_unit(&mut bytes, unit::KEY_SLICE, &key_slice(picture, self.keyframes % 2));
                self.keyframes = self.keyframes.wrapping_add(1);
                self.frame_number = 0;
            }
            Some(before) => {
                self.frame_number = (self.frame_number + 1) % (1 << FRAME_NUMBER_BITS);
                put_unit(&mut bytes, unit::OTHER_SLICE, &other_slice(before, picture, self.frame_number));
            }
        }
        self.last = Some(picture.clone());
        bytes
    }
}

/// Lengthens an access unit: a unit of filler (7.3.2.7), or zeros behind the last unit (B.1.1), where one does not
/// fit.
pub fn fill(unit: &mut Vec<u8>, bytes: usize) {
    /// Start code, header and the final bit.
    const LEAST: usize = 6;
    if bytes < LEAST {
        unit.resize(unit.len() + bytes, 0);
        return;
    }
    unit.extend_from_slice(&[0, 0, 0, 1, unit::FILLER]);
    unit.resize(unit.len() + bytes - LEAST, 0xff);
    unit.push(0x80);
}

/// 7.3.1, B.1: a start code, the header, and what would look like a start code taken apart (7.4.1.1).
fn put_unit(to: &mut Vec<u8>, header: u8, payload: &[u8]) {
    to.extend_from_slice(&[0, 0, 0, 1, header]);
    let mut zeros = 0;
    for &byte in payload {
        if zeros == 2 && byte <= 3 {
            to.push(3);
            zeros = 0;
        }
        to.push(byte);
        zeros = if byte == 0 { zeros + 1 } else { 0 };
    }
}

/// 7.3.2.1.1.
fn sequence_parameters(width: usize, height: usize, frames_per_s: u32, level: u8) -> Vec<u8> {
    let (columns, rows) = (width.div_ceil(MACROBLOCK) as u32, height.div_ceil(MACROBLOCK) as u32);
    // In units of two pixels.
    let right = (columns * 16 - width as u32) / 2;
    let below = (rows * 16 - height as u32) / 2;
    let mut bits = Bits::default();
    bits.put(66, 8); // profile_idc: baseline
    bits.put(0b1100_0000, 8); // constraint_set0_flag, constraint_set1_flag: constrained baseline
    bits.put(level.into(), 8);
    bits.unsigned(0); // seq_parameter_set_id
    bits.unsigned(FRAME_NUMBER_BITS - 4);
    bits.unsigned(2); // pic_order_cnt_type: shown in the order in which they are decoded
    bits.unsigned(1); // max_num_ref_frames
    bits.flag(false); // gaps_in_frame_num_value_allowed_flag
    bits.unsigned(columns - 1);
    bits.unsigned(rows - 1);
    bits.flag(true); // frame_mbs_only_flag
    bits.flag(true); // direct_8x8_inference_flag
    bits.flag(right + below > 0); // frame_cropping_flag
    if right + below > 0 {
        for offset in [0, right, 0, below] {
            bits.unsigned(offset);
        }
    }
    bits.flag(true); // vui_parameters_present_flag (E.1.1)
    bits.flag(true); // aspect_ratio_info_present_flag
    bits.put(1, 8); // square pixels
    bits.put(0, 3); // overscan_info_, video_signal_type_, chroma_loc_info_present_flag
    bits.flag(true); // timing_info_present_flag
    bits.put(1, 32); // num_units_in_tick
    bits.put(2 * frames_per_s, 32); // time_scale: a picture is two fields
    bits.flag(true); // fixed_frame_rate_flag
    bits.put(0, 3); // nal_hrd_, vcl_hrd_parameters_present_flag, pic_struct_present_flag
    // A decoder that is not told may wait for pictures that come in another order.
    bits.flag(true); // bitstream_restriction_flag
    bits.flag(false); // motion_vectors_over_pic_boundaries_flag
    for value in [0, 0, 0, 0, 0, 1] {
        // No limit of bytes or bits, no motion, max_num_reorder_frames = 0, max_dec_frame_buffering = 1.
        bits.unsigned(value);
    }
    bits.finish()
}

/// 7.3.2.2.
fn picture_parameters() -> Vec<u8> {
    let mut bits = Bits::default();
    bits.unsigned(0); // pic_parameter_set_id
    bits.unsigned(0); // seq_parameter_set_id
    bits.put(0, 2); // entropy_coding_mode_flag: CAVLC; bottom_field_pic_order_in_frame_present_flag
    bits.unsigned(0); // num_slice_groups_minus1
    bits.unsigned(0); // num_ref_idx_l0_default_active_minus1
    bits.unsigned(0); // num_ref_idx_l1_default_active_minus1
    bits.put(0, 3); // weighted_pred_flag, weighted_bipred_idc
    bits.signed(LUMA_QUANTIZER - 26); // pic_init_qp_minus26
    bits.signed(0); // pic_init_qs_minus26
    bits.signed(CHROMA_QUANTIZER - LUMA_QUANTIZER); // chroma_qp_index_offset
    bits.flag(true); // deblocking_filter_control_present_flag
    bits.flag(false); // constrained_intra_pred_flag
    bits.flag(false); // redundant_pic_cnt_present_flag
    bits.finish()
}

/// What slices of both types begin with (7.3.3).
fn slice(slice_type: u32, frame_number: u32) -> Bits {
    let mut bits = Bits::default();
    bits.unsigned(0); // first_mb_in_slice
    bits.unsigned(slice_type);
    bits.unsigned(0); // pic_parameter_set_id
    bits.put(frame_number, FRAME_NUMBER_BITS);
    bits
}

/// What their headers end with.
fn end_header(bits: &mut Bits) {
    bits.signed(0); // slice_qp_delta
    bits.unsigned(1); // disable_deblocking_filter_idc: edges stay as they are
}

/// A picture that needs no other: an IDR picture of one slice. Two in a row differ in `number`.
fn key_slice(picture: &Picture, number: u32) -> Vec<u8> {
    let mut bits = slice(7, 0); // all slices are I
    bits.unsigned(number); // idr_pic_id
    bits.put(0, 2); // no_output_of_prior_pics_flag, long_term_reference_flag
    end_header(&mut bits);
    for place in 0..picture.colours.len() {
        // Table 7-11: I_16x16 types begin at 1.
        macroblock(&mut bits, picture, place, 1);
    }
    bits.finish()
}

/// A picture of which only those macroblocks are coded that are not as they were.
fn other_slice(before: &Picture, picture: &Picture, frame_number: u32) -> Vec<u8> {
    let mut bits = slice(5, frame_number); // all slices are P
    // num_ref_idx_active_override_flag, ref_pic_list_modification_flag_l0, adaptive_ref_pic_marking_mode_flag
    bits.put(0, 3);
    end_header(&mut bits);
    let mut skipped = 0;
    for place in 0..picture.colours.len() {
        if picture.colours[place] == before.colours[place] {
            skipped += 1;
            continue;
        }
        bits.unsigned(skipped); // mb_skip_run
        skipped = 0;
        // Table 7-13: five types of P come before those of I.
        macroblock(&mut bits, picture, place, 5 + 1);
    }
    if skipped > 0 {
        bits.unsigned(skipped);
    }
    bits.finish()
}

/// 7.3.5: an Intra_16x16 macroblock; `types` is where their numbers begin.
fn macroblock(bits: &mut Bits, picture: &Picture, place: usize, types: u32) {
    /// With no neighbour, 128 is predicted (8.3.3.3, 8.3.4).
    const MIDDLE: Colour = [128; 3];
    let (columns, colours) = (picture.columns, &picture.colours);
    // Tables 8-4 and 8-5 number the same ways of prediction differently.
    let (luma_mode, chroma_mode, predicted) = if !place.is_multiple_of(columns) {
        (1, 1, colours[place - 1]) // both horizontal
    } else if place >= columns {
        (0, 2, colours[place - columns]) // both vertical
    } else {
        (2, 0, MIDDLE) // both DC
    };
    let [luma, blue, red] = std::array::from_fn(|plane| i32::from(colours[place][plane]) - i32::from(predicted[plane]));
    let has_chroma = blue != 0 || red != 0;
    bits.unsigned(types + luma_mode + 4 * u32::from(has_chroma)); // mb_type: table 7-11
    bits.unsigned(chroma_mode); // intra_chroma_pred_mode
    bits.signed(0); // mb_qp_delta
    bits.coefficient(luma, &LUMA_TOKENS);
    if has_chroma {
        bits.coefficient(blue, &CHROMA_TOKENS);
        bits.coefficient(red, &CHROMA_TOKENS);
    }
}

/// Words of coeff_token (table 9-5) and how many bits each has: for no coefficient, for one that is 1 or -1, and
/// for one that is neither.
struct Tokens([(u32, u32); 3]);

/// For 0 <= nC < 2: no macroblock here has other coefficients than DC, which do not count (9.2.1).
const LUMA_TOKENS: Tokens = Tokens([(0b1, 1), (0b01, 2), (0b000101, 6)]);

/// For nC = -1: the DC of chroma.
const CHROMA_TOKENS: Tokens = Tokens([(0b01, 2), (0b1, 1), (0b000111, 6)]);

impl Bits {
    /// A block whose only coefficient is the first (7.3.5.3.2).
    fn coefficient(&mut self, value: i32, Tokens([none, one, other]): &Tokens) {
        match value {
            0 => return self.put(none.0, none.1),
            1 | -1 => {
                self.put(one.0, one.1);
                self.flag(value < 0); // trailing_ones_sign_flag
            }
            _ => {
                self.put(other.0, other.1);
                self.level(value);
            }
        }
        self.flag(true); // total_zeros = 0 (tables 9-7 and 9-9): nothing is before it
    }

    /// A level that is neither 1 nor -1, the first of its block (9.2.2.1): levelCode counts 2, -2, 3, -3 and so on.
    fn level(&mut self, value: i32) {
        let code = 2 * value.unsigned_abs() - 4 + u32::from(value < 0);
        match code {
            0..14 => self.put(1, code + 1),
            14..30 => {
                self.put(1, 15);
                self.put(code - 14, 4);
            }
            _ => {
                self.put(1, 16);
                self.put(code - 30, 12);
            }
        }
    }
}
