"tile.kernel"() ({
^bb0(%a: !tile.desc<tensor<16x16xf16>>, %b: !tile.desc<tensor<16x16xf16>>, %out: !tile.desc<tensor<16x16xf16>>, %I: i32, %J: i32, %K: i32):
  %acc = tile.constant {value = #tile.real<"0.0">} : tensor<16x16xf32>
  %0 = tile.constant {value = #builtin.int<0>} : i32
  %1 = tile.constant {value = #builtin.int<1>} : i32
  %acc_1 = scf.for %i = %0 to %I step %1 iter_args(%acc_2 = %acc) -> (tensor<16x16xf32>) : i32 {
    %acc_3 = scf.for %j = %0 to %J step %1 iter_args(%acc_4 = %acc_2) -> (tensor<16x16xf32>) : i32 {
      %2 = tile.constant {value = #builtin.int<16>} : i32
      %acc_5 = scf.for %k = %0 to %K step %2 iter_args(%acc_6 = %acc_4) -> (tensor<16x16xf32>) : i32 {
        %3 = tile.elementwise "mul"(%i, %2) : (i32, i32) -> i32
        %a_1 = tile.desc_load %a[%3, %k] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
        %4 = tile.elementwise "mul"(%j, %2) : (i32, i32) -> i32
        %b_1 = tile.desc_load %b[%k, %4] : (!tile.desc<tensor<16x16xf16>>, i32, i32) -> tensor<16x16xf16>
        %acc_7 = tile.dot %a_1, %b_1, %acc_6 {precision = "tf32", max_imprecise = #builtin.int<0>} : (tensor<16x16xf16>, tensor<16x16xf16>, tensor<16x16xf32>) -> tensor<16x16xf32>
        scf.yield %acc_7 : tensor<16x16xf32>
      }
      %5 = tile.constant {value = #tile.real<"0.5">} : tensor<16x16xf32>
      %acc_8 = tile.elementwise "mul"(%acc_5, %5) : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
      scf.yield %acc_8 : tensor<16x16xf32>
    }
    scf.yield %acc_3 : tensor<16x16xf32>
  }
  %6 = tile.cast %acc_1 : (tensor<16x16xf32>) -> tensor<16x16xf16>
  tile.desc_store %out[%0, %0], %6 : !tile.desc<tensor<16x16xf16>>, i32, i32, tensor<16x16xf16>
}) {sym_name = "three_nested", arguments = [{name = "a"}, {name = "b"}, {name = "out"}, {name = "I"}, {name = "J"}, {name = "K"}], options = {num_warps = #builtin.int<4>}} : () -> ()
