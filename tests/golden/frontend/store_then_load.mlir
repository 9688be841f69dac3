"tile.kernel"() ({
^bb0(%a: !tile.desc<tensor<16x16xf16>>, %K: i32):
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<16>} : i32
  scf.for %k = %0 to %K step %1 : i32 {
    %x = tile.desc_load %a[%0, %k] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
    %2 = tile.elementwise "add"(%k, %1) : (i32, i32) -> i32
    %3 = tile.constant {value = #tile.real<"1.0">} : tensor<16x16xf16>
    %4 = tile.elementwise "add"(%x, %3) : (tensor<16x16xf16>, tensor<16x16xf16>) -> tensor<16x16xf16>
    tile.desc_store %a[%0, %2], %4 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
  }
}) {sym_name = "store_then_load", arguments = [{name = "a"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
